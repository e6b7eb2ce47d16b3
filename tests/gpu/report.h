// What holdfast-gpu-check found: lines of a table, and the same as JSON.
#ifndef HOLDFAST_TESTS_GPU_REPORT_H_
#define HOLDFAST_TESTS_GPU_REPORT_H_

#include <string>
#include <vector>

namespace holdfast::gpu_check {

enum class Outcome {
  kOk,
  kFailed,
  kRefused,   // by the machine, with its reason: no failure
  kMeasured,  // a figure, nothing to hold it against
};

struct Line {
  std::string part;
  std::string name;
  Outcome outcome = Outcome::kOk;
  std::string detail;
};

class Report {
 public:
  void Add(std::string part, std::string name, Outcome outcome,
           std::string detail);
  bool failed() const;
  std::string Table() const;
  // `facts`: a JSON object about the device.
  std::string Json(const std::string& facts) const;

 private:
  std::vector<Line> lines_;
};

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_REPORT_H_
