// The numbers of quantised blocks against other readers of the formats
// (scripts/golden/make_weight_golden.py writes the file and says what is in
// it): equal to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <string>

#include "kernels/host/testing.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels {
namespace {

struct Case {
  testing::OwnedTensor weight;
  std::vector<float> numbers;
};

WeightType TypeOf(const std::string& name) {
  for (const WeightType type : testing::kAllWeightTypes) {
    if (name == WeightTypeName(type)) return type;
  }
  ADD_FAILURE() << "the golden file has a type " << name;
  return WeightType::kF32;
}

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  std::vector<Case> Read() {
    if (Take(4) != "HFW1") return {};
    std::vector<Case> cases(U32());
    for (Case& one : cases) {
      WeightTensor& tensor = one.weight.tensor;
      tensor.name = Take(U32());
      tensor.type = TypeOf(tensor.name);
      tensor.rows = U32();
      tensor.cols = U32();
      tensor.scales = Floats(U32());
      if (!tensor.scales.empty()) tensor.scale_rows = tensor.scale_cols = 128;
      const std::string data = Take(U32());
      const auto span = std::as_bytes(std::span(data));
      one.weight.bytes.assign(span.begin(), span.end());
      tensor.data = one.weight.bytes.data();
      one.numbers = Floats(tensor.rows * tensor.cols);
    }
    EXPECT_EQ(at_, bytes_.size());
    return cases;
  }

 private:
  std::string Take(std::size_t count) {
    const std::string part = bytes_.substr(std::min(at_, bytes_.size()), count);
    EXPECT_EQ(part.size(), count) << "golden file too short";
    at_ += count;
    return part;
  }
  std::uint32_t U32() {
    std::uint32_t value = 0;
    std::memcpy(&value, Take(sizeof value).data(), sizeof value);
    return value;
  }
  std::vector<float> Floats(std::size_t count) {
    std::vector<float> values(count);
    if (count == 0) return values;
    std::memcpy(values.data(), Take(count * sizeof(float)).data(),
                count * sizeof(float));
    return values;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

TEST(WeightGoldenTest, NumbersOfEveryQuantisedType) {
  const std::vector<Case> cases =
      Reader("tests/golden/weights/blocks.bin").Read();
  ASSERT_FALSE(cases.empty());
  std::set<WeightType> seen;
  for (const Case& one : cases) {
    const WeightTensor& tensor = one.weight.tensor;
    SCOPED_TRACE(tensor.name);
    seen.insert(tensor.type);
    const reference::Numbers twin = reference::Widen(tensor);
    for (std::size_t i = 0; i < twin.size(); ++i) {
      ASSERT_EQ(static_cast<float>(twin[i]), one.numbers[i]) << "twin, " << i;
    }
    std::vector<std::int32_t> ids(tensor.rows);
    std::iota(ids.begin(), ids.end(), 0);
    testing::ForEachTarget([&](const std::string& name) {
      auto backend = testing::MakeBackend(1);
      auto matrix = backend->PackMatrix({&tensor, 1});
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      std::vector<float> got(one.numbers.size(), NAN);
      backend->EmbedRows(**matrix, ids, got.data());
      EXPECT_EQ(std::memcmp(got.data(), one.numbers.data(),
                            got.size() * sizeof(float)),
                0)
          << name;
    });
  }
  for (const WeightType type : testing::kAllWeightTypes) {
    EXPECT_EQ(seen.count(type), WeightBlock(type) > 1) << WeightTypeName(type);
  }
}

}  // namespace
}  // namespace holdfast::kernels
