// Golden files: what Hugging Face transformers computes for a generated model
// (scripts/golden/golden_file.py writes them and says how).
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_GOLDEN_FILE_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_GOLDEN_FILE_H_

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace holdfast::model::testing {

// Every `stride`-th number of an array, from the first on.
struct GoldenArray {
  std::uint32_t stride = 1;
  std::vector<float> values;
};

struct GoldenRow {
  std::uint32_t position = 0;
  GoldenArray logits;
};

struct GoldenCase {
  std::vector<std::int32_t> ids;
  std::vector<GoldenRow> rows;
  // After the last id: the states, the convolutions' last inputs, the last
  // hidden row; none for models without.
  std::vector<GoldenArray> sections;
};

// Empty when the file is missing or broken.
std::vector<GoldenCase> ReadGolden(const std::string& path);

// The largest difference between a golden array and the numbers of `got`, and
// the array's largest number, both taken over every call. A NaN counts as a
// difference.
class GoldenDifference {
 public:
  template <typename Got>
  void Add(const GoldenArray& golden, const Got& got) {
    for (std::size_t i = 0; i < golden.values.size(); ++i) {
      AddOne(golden.values[i], got(i * golden.stride));
    }
  }
  // Of the largest number; 0 when nothing was added.
  double relative() const { return largest_ > 0 ? difference_ / largest_ : 0; }
  // Root of the mean squares of both, by one another; a NaN stays one.
  double relative_rms() const {
    return squares_ > 0 ? std::sqrt(difference_squares_ / squares_) : 0;
  }

 private:
  void AddOne(double golden, double got);

  double largest_ = 0;
  double difference_ = 0;
  double squares_ = 0;
  double difference_squares_ = 0;
};

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_GOLDEN_FILE_H_
