#include "engine/model/testing/golden_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

namespace holdfast::model::testing {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  std::vector<GoldenCase> Read() {
    if (bytes_.substr(0, 4) != "HFG2") return {};
    at_ = 4;
    std::vector<GoldenCase> cases(U32());
    for (GoldenCase& one : cases) {
      one.ids = Numbers<std::int32_t>(U32());
      one.rows.resize(U32());
      for (GoldenRow& row : one.rows) {
        row.position = U32();
        row.logits = Array();
      }
      one.sections.resize(U32());
      for (GoldenArray& section : one.sections) section = Array();
    }
    if (broken_ || at_ != bytes_.size()) return {};
    return cases;
  }

 private:
  std::uint32_t U32() {
    const auto one = Numbers<std::uint32_t>(1);
    return one.empty() ? 0 : one[0];
  }

  GoldenArray Array() {
    GoldenArray array;
    array.stride = U32();
    array.values = Numbers<float>(U32());
    return array;
  }

  template <typename T>
  std::vector<T> Numbers(std::size_t count) {
    broken_ |= count > (bytes_.size() - at_) / sizeof(T);
    if (broken_) return {};
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return values;
  }

  std::string bytes_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace

std::vector<GoldenCase> ReadGolden(const std::string& path) {
  return Reader(path).Read();
}

void GoldenDifference::AddOne(double golden, double got) {
  largest_ = std::max(largest_, std::fabs(golden));
  const double difference = std::fabs(got - golden);
  squares_ += golden * golden;
  difference_squares_ += difference * difference;
  // Written so that a NaN counts, and stays.
  if (!(difference <= difference_)) difference_ = difference;
}

}  // namespace holdfast::model::testing
