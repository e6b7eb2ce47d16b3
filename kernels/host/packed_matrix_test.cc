#include "kernels/host/packed_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using ::testing::HasSubstr;
using testing::MakeBackend;
using testing::OwnedTensor;
using testing::Random;

std::string PackError(Backend& backend, std::vector<WeightTensor> parts) {
  auto matrix = backend.PackMatrix(parts);
  EXPECT_FALSE(matrix.ok());
  return matrix.ok() ? "" : matrix.status().message();
}

TEST(PackMatrixTest, ErrorsNameTensorTypeAndShape) {
  Random random(1);
  auto backend = MakeBackend(1);
  const OwnedTensor good = RandomTensor(random, WeightType::kQ4_1, 4, 64);
  WeightTensor bad = good.tensor;
  bad.name = "blk.7.ffn_up.weight";
  bad.cols = 60;
  EXPECT_THAT(PackError(*backend, {bad}),
              HasSubstr("blk.7.ffn_up.weight (Q4_1, 4 x 60)"));
  bad.cols = 32;
  EXPECT_THAT(PackError(*backend, {good.tensor, bad}),
              HasSubstr("blk.7.ffn_up.weight (Q4_1, 4 x 32)"));
  bad.rows = 0;
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("shape"));
  bad.rows = 4;
  bad.data = nullptr;
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("no data"));
  bad.data = good.tensor.data;
  bad.row_order = {0, 1, 2};
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("row order of 3"));
  bad.row_order = {0, 1, 2, 4};
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("row 4"));
  EXPECT_THAT(PackError(*backend, {}), HasSubstr("no tensors"));
}

TEST(PackMatrixTest, TakesNoMoreThanTheFile) {
  Random random(2);
  auto backend = MakeBackend(1);
  for (const WeightType type : testing::kAllWeightTypes) {
    const OwnedTensor w = RandomTensor(random, type, 64, 96);
    auto matrix = backend->PackMatrix({&w.tensor, 1});
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ((*matrix)->bytes(), w.bytes.size()) << WeightTypeName(type);
  }
}

TEST(UploadVectorTest, WidensAndRefuses) {
  Random random(3);
  auto backend = MakeBackend(1);
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x0001};
  WeightTensor tensor = {"output_norm.weight",
                         WeightType::kF16,
                         1,
                         3,
                         reinterpret_cast<const std::byte*>(halves),
                         {}};
  auto vector = backend->UploadVector(tensor);
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ((*vector)->floats()[0], 1.0f);
  EXPECT_EQ((*vector)->floats()[1], -2.0f);
  EXPECT_EQ((*vector)->floats()[2], 0x1p-24f);
  const OwnedTensor quantised = RandomTensor(random, WeightType::kQ8_0, 1, 32);
  auto refused = backend->UploadVector(quantised.tensor);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("test.weight (Q8_0, 1 x 32)"));
}

}  // namespace
}  // namespace holdfast::kernels
