#include "kernels/host/packed_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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

TEST(PackMatrixTest, EveryTypeRefusesRowsOfBrokenBlocks) {
  Random random(4);
  auto backend = MakeBackend(1);
  for (const WeightType type : testing::kAllWeightTypes) {
    const int block = WeightBlock(type);
    if (block == 1) continue;
    OwnedTensor w = RandomTensor(random, type, 3, 2 * block);
    w.tensor.cols -= block / 2;
    EXPECT_THAT(
        PackError(*backend, {w.tensor}),
        ::testing::AllOf(HasSubstr(DescribeTensor(w.tensor)),
                         HasSubstr("multiple of " + std::to_string(block))));
  }
}

TEST(PackMatrixTest, ScalesOfF8) {
  Random random(5);
  auto backend = MakeBackend(1);
  OwnedTensor owned = RandomTensor(random, WeightType::kF8E4M3, 200, 160);
  const WeightTensor good = owned.tensor;
  EXPECT_TRUE(backend->PackMatrix({&good, 1}).ok());
  WeightTensor bad = good;
  bad.scales.pop_back();
  EXPECT_THAT(PackError(*backend, {bad}),
              HasSubstr("(F8_E4M3, 200 x 160): 3 scales, needs 4"));
  bad = good;
  bad.scale_cols = 96;
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("scales of 128 x 96"));
  bad.scale_cols = 0;
  EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("scales of 128 x 0"));
  for (const float scale : {kF8ScaleBound, -kF8ScaleBound, NAN, INFINITY}) {
    bad = good;
    bad.scales[2] = scale;
    EXPECT_THAT(PackError(*backend, {bad}), HasSubstr("too large")) << scale;
  }
  owned.bytes[777] = std::byte{0xff};
  EXPECT_THAT(PackError(*backend, {good}), HasSubstr("NaN"));
  OwnedTensor other = RandomTensor(random, WeightType::kQ6_K, 2, 256);
  other.tensor.scales = {1.0f};
  EXPECT_THAT(PackError(*backend, {other.tensor}), HasSubstr("no scales"));
}

// q, k and v of one layer are often of different types.
TEST(PackMatrixTest, EveryTypeBesideAnother) {
  Random random(6);
  auto backend = MakeBackend(2);
  constexpr int kCols = 512, kOutputs = 40;
  std::vector<OwnedTensor> owned;
  std::vector<WeightTensor> parts;
  for (const WeightType type : testing::kAllWeightTypes) {
    owned.push_back(RandomTensor(random, type, kOutputs, kCols));
    parts.push_back(owned.back().tensor);
  }
  auto joined = backend->PackMatrix(parts);
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  const int width = static_cast<int>((*joined)->rows());
  ASSERT_EQ(width, kOutputs * static_cast<int>(parts.size()));
  const auto x = random.Floats(20 * kCols);
  for (const int rows : {1, 3, 20}) {
    std::vector<float> all(rows * width, NAN), one(rows * kOutputs, NAN);
    backend->MatMul(**joined, x.data(), rows, nullptr, all.data());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      auto alone = backend->PackMatrix({&parts[p], 1});
      ASSERT_TRUE(alone.ok());
      backend->MatMul(**alone, x.data(), rows, nullptr, one.data());
      for (int r = 0; r < rows; ++r) {
        EXPECT_EQ(std::memcmp(&all[r * width + p * kOutputs],
                              &one[r * kOutputs], kOutputs * sizeof(float)),
                  0)
            << WeightTypeName(parts[p].type) << ", row " << r;
      }
    }
  }
}

TEST(PackMatrixTest, TakesNoMoreThanTheFile) {
  Random random(2);
  auto backend = MakeBackend(1);
  for (const WeightType type : testing::kAllWeightTypes) {
    const OwnedTensor w =
        RandomTensor(random, type, 64, testing::WholeBlocks(type, 96));
    auto matrix = backend->PackMatrix({&w.tensor, 1});
    ASSERT_TRUE(matrix.ok());
    // Every row of F8_E4M3 carries its scales.
    const std::size_t scales =
        type == WeightType::kF8E4M3 ? 64 * sizeof(float) : 0;
    EXPECT_EQ((*matrix)->bytes(), w.bytes.size() + scales)
        << WeightTypeName(type);
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
  for (const WeightType type : testing::kAllWeightTypes) {
    const int block = WeightBlock(type);
    if (block == 1) continue;
    const OwnedTensor quantised = RandomTensor(random, type, 1, block);
    auto refused = backend->UploadVector(quantised.tensor);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(refused.status().message(),
                HasSubstr(DescribeTensor(quantised.tensor)));
  }
}

}  // namespace
}  // namespace holdfast::kernels
