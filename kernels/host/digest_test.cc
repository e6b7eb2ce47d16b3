// Digests of fixed results, committed: equal for every instruction set, build
// and machine. A change that turns this red alters cached bytes: it must raise
// the arithmetic revision, and then the digests here.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/host/testing.h"
#include "kernels/portable_math.h"

namespace holdfast::kernels {
namespace {

using testing::Digest;
using testing::MakeBackend;
using testing::OwnedTensor;
using testing::Random;

constexpr int kRevision = 1;
constexpr int kTokens = 300;
constexpr int kHidden = 224;  // a widened block of weights and a part of one
constexpr int kHeads = 6, kKvHeads = 2, kHeadDim = 32;
constexpr int kQueryWidth = kHeads * kHeadDim;
constexpr int kKvWidth = kKvHeads * kHeadDim;
constexpr int kJoined = kQueryWidth + 2 * kKvWidth;

std::uint64_t Of(const std::vector<float>& values) {
  return Digest(0, values.data(), values.size() * sizeof(float));
}

// One attention layer with weights of `type`, in launches of `rows` rows.
std::uint64_t LayerDigest(Backend& backend, WeightType type, StateType state,
                          int rows) {
  Random random(77);
  const auto pack = [&](int outputs, int cols) {
    const OwnedTensor w = RandomTensor(random, type, outputs, cols);
    auto matrix = backend.PackMatrix({&w.tensor, 1});
    EXPECT_TRUE(matrix.ok());
    return std::move(matrix).value();
  };
  const auto embedding = pack(50, kHidden);
  const auto qkv = pack(kJoined, kHidden);
  const auto output = pack(kHidden, kQueryWidth);
  const auto gate_up = pack(2 * kQueryWidth, kHidden);
  const auto bias = random.Floats(kJoined);
  const auto weight = random.Floats(kHidden);
  const auto head_weight = random.Floats(kHeadDim);
  std::vector<float> frequencies;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    frequencies.push_back(
        static_cast<float>(1 / portable::Pow(10000.0, 2.0 * i / kHeadDim)));
  }
  auto table = backend.MakeRopeTable(frequencies, kTokens);
  EXPECT_TRUE(table.ok());

  const KvShape shape = {1, kKvHeads, kHeadDim, state};
  testing::TestPool pool(shape, kTokens, testing::kQuietNan);
  std::vector<float> result;
  for (int position = 0; position < kTokens; position += rows) {
    const int n = std::min(rows, kTokens - position);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < n; ++i) ids.push_back((position + i) * 7 % 50);
    std::vector<float> x(n * kHidden), normed(n * kHidden), q(n * kJoined),
        mixed(n * kQueryWidth), wide(n * 2 * kQueryWidth);
    const RowSpan span = {pool.blocks(), 0, position, n};
    backend.EmbedRows(*embedding, ids, x.data());
    backend.RmsNorm(x.data(), weight.data(), 1e-5f, n, kHidden, normed.data());
    backend.MatMul(*qkv, normed.data(), n, bias.data(), q.data());
    backend.HeadNorm(q.data(), head_weight.data(), 1e-6f, n, kJoined,
                     kHeads + kKvHeads, kHeadDim);
    backend.Rope(q.data(), kJoined, kHeads + kKvHeads, kHeadDim, **table,
                 {&span, 1});
    backend.StoreKv(shape, 0, &q[kQueryWidth], &q[kQueryWidth + kKvWidth],
                    kJoined, {&span, 1});
    backend.Attention(shape, 0, q.data(), kJoined, kHeads, 0.5f, {&span, 1},
                      mixed.data());
    backend.MatMul(*output, mixed.data(), n, nullptr, normed.data());
    backend.Add(x.data(), normed.data(), n, kHidden);
    backend.MatMul(*gate_up, x.data(), n, nullptr, wide.data());
    backend.SiluMul(wide.data(), n, kQueryWidth, mixed.data());
    result.insert(result.end(), mixed.begin(), mixed.end());
  }
  for (const float value : result) EXPECT_TRUE(std::isfinite(value));
  return Of(result);
}

struct Expected {
  WeightType type;
  std::uint64_t bf16;
  std::uint64_t f32;
};
constexpr Expected kExpected[] = {
    {WeightType::kF32, 0x06f99ea2f38da2db, 0xc0c5b2b51a71780f},
    {WeightType::kF16, 0x314d68a8b068ffeb, 0xcf2639a464c9d58e},
    {WeightType::kBF16, 0xda54cc6df345a513, 0xd37a34bee6053465},
    {WeightType::kQ8_0, 0x57df584fb874456b, 0x51484f78fd4d7b4b},
    {WeightType::kQ4_0, 0x3a0aef84d53878a9, 0xaf36d79e9390c0ae},
    {WeightType::kQ4_1, 0xd932140281ac8c82, 0x727c94db5d09822b},
};

TEST(DigestTest, LayersOnEveryTarget) {
  testing::ForEachTarget([](const std::string& name) {
    auto backend = MakeBackend(2);
    ASSERT_EQ(backend->info().arithmetic_revision, kRevision);
    for (const Expected& expected : kExpected) {
      for (const int rows : {1, 64, kTokens}) {
        SCOPED_TRACE(name + " " + WeightTypeName(expected.type) + " " +
                     std::to_string(rows) + " rows");
        EXPECT_EQ(LayerDigest(*backend, expected.type, StateType::kBF16, rows),
                  expected.bf16);
        EXPECT_EQ(LayerDigest(*backend, expected.type, StateType::kF32, rows),
                  expected.f32);
      }
    }
  });
}

TEST(DigestTest, RopeTables) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) {
    const auto frequency =
        static_cast<float>(1 / portable::Pow(500000.0, 2.0 * i / 128));
    values.push_back(frequency);
    for (const int position : {1, 77, 8191, 131071}) {
      const auto angle =
          portable::SinCos(static_cast<float>(position) * frequency);
      values.push_back(static_cast<float>(angle.cos));
      values.push_back(static_cast<float>(angle.sin));
    }
  }
  EXPECT_EQ(Of(values), 0x6bbcf6d952bcb580u);
}

}  // namespace
}  // namespace holdfast::kernels
