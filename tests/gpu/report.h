// What holdfast-gpu-check found: lines of a table, and the same as JSON, with a
// summary of each part that ran.
#ifndef HOLDFAST_TESTS_GPU_REPORT_H_
#define HOLDFAST_TESTS_GPU_REPORT_H_

#include <chrono>
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
  double seconds = 0;  // since the line before it
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
  std::string PartsJson() const;

  std::vector<Line> lines_;
  std::chrono::steady_clock::time_point last_ =
      std::chrono::steady_clock::now();
};

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_REPORT_H_
