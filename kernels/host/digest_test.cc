// Digests of fixed results, committed: equal for every instruction set, build
// and machine. A change that turns this red alters cached bytes: it must raise
// the arithmetic revision, and then the digests here.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/host/gdn_testing.h"
#include "kernels/host/moe_testing.h"
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
constexpr int kKvHeads = 2, kHeadDim = 32;
constexpr int kKvWidth = kKvHeads * kHeadDim;

std::uint64_t Of(const std::vector<float>& values) {
  return Digest(0, values.data(), values.size() * sizeof(float));
}

// One attention layer with weights of `type`, in launches of `rows` rows.
std::uint64_t LayerDigest(Backend& backend, WeightType type, StateType state,
                          int rows) {
  // A widened block of weights and a part of one, and a whole one; more where
  // the type's blocks are larger.
  const int hidden = testing::WholeBlocks(type, 224);
  const int query_width = testing::WholeBlocks(type, 192);
  const int heads = query_width / kHeadDim;
  const int joined = query_width + 2 * kKvWidth;
  Random random(77);
  const auto pack = [&](int outputs, int cols) {
    const OwnedTensor w = RandomTensor(random, type, outputs, cols);
    auto matrix = backend.PackMatrix({&w.tensor, 1});
    EXPECT_TRUE(matrix.ok());
    return std::move(matrix).value();
  };
  const auto embedding = pack(50, hidden);
  const auto qkv = pack(joined, hidden);
  const auto output = pack(hidden, query_width);
  const auto gate_up = pack(2 * query_width, hidden);
  const auto bias = random.Floats(joined);
  const auto weight = random.Floats(hidden);
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
    std::vector<float> x(n * hidden), normed(n * hidden), q(n * joined),
        mixed(n * query_width), wide(n * 2 * query_width);
    const RowSpan span = {pool.blocks(), 0, position, n};
    backend.EmbedRows(*embedding, ids, x.data());
    backend.RmsNorm(x.data(), weight.data(), 1e-5f, n, hidden, normed.data());
    backend.MatMul(*qkv, normed.data(), n, bias.data(), q.data());
    backend.HeadNorm(q.data(), head_weight.data(), 1e-6f, n, joined,
                     heads + kKvHeads, kHeadDim);
    backend.Rope(q.data(), joined, heads + kKvHeads, kHeadDim, **table,
                 {&span, 1});
    backend.StoreKv(shape, 0, &q[query_width], &q[query_width + kKvWidth],
                    joined, {&span, 1});
    backend.Attention(shape, 0, q.data(), joined, heads, 0.5f, {&span, 1},
                      mixed.data());
    backend.MatMul(*output, mixed.data(), n, nullptr, normed.data());
    backend.Add(x.data(), normed.data(), n, hidden);
    backend.MatMul(*gate_up, x.data(), n, nullptr, wide.data());
    backend.SiluMul(wide.data(), n, query_width, mixed.data());
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
    {WeightType::kQ5_0, 0xff631a39039e2af8, 0x4f99111e62694f22},
    {WeightType::kQ5_1, 0xc7b51a4ae8ca6209, 0x63525838704ba008},
    {WeightType::kQ4_K, 0xc85f3fa8aa22ced5, 0xf7d9d25a196d7a1e},
    {WeightType::kQ5_K, 0xea8f6127d5dd3321, 0x30b91db813c00382},
    {WeightType::kQ6_K, 0x5c7f9e1f2f18909d, 0xfbf6235ea5176345},
    {WeightType::kF8E4M3, 0xdec52b136b4617e9, 0xaf2a77b8a6454105},
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

// One gated delta net layer, in launches of `rows` rows: what it puts out and
// the sections it leaves.
std::uint64_t GdnDigest(Backend& backend, const GdnShape& shape, int rows) {
  testing::GdnLayer layer(shape, 78);
  const int width = shape.ProjectedWidth();
  const auto projected = layer.Rows(kTokens);
  testing::GdnSections sections(shape, 0);
  std::vector<float> out(kTokens * shape.ValueWidth());
  for (int position = 0; position < kTokens; position += rows) {
    const RowSpan span = {nullptr, 0, position,
                          std::min(rows, kTokens - position), sections.data()};
    backend.GatedDeltaNet(shape, layer.weights(), sections.place(),
                          &projected[position * width], width, {&span, 1},
                          &out[position * shape.ValueWidth()]);
  }
  for (const float value : out) EXPECT_TRUE(std::isfinite(value));
  const std::size_t bytes = sections.place().state + shape.StateBytes();
  return Digest(Of(out), sections.data(), bytes);
}

struct ExpectedGdn {
  GdnShape shape;
  std::uint64_t digest;
};
constexpr ExpectedGdn kExpectedGdn[] = {
    {{2, 4, 128, 128, GdnHeads::kGrouped, StateType::kBF16},
     0x348788418b589517},
    {{2, 4, 128, 128, GdnHeads::kTiled, StateType::kBF16}, 0xbd21db602338facb},
    {{2, 6, 32, 96, GdnHeads::kGrouped, StateType::kF32}, 0x3375a78ff74a6f10},
};

TEST(DigestTest, GatedDeltaNetsOnEveryTarget) {
  testing::ForEachTarget([](const std::string& name) {
    auto backend = MakeBackend(2);
    for (const ExpectedGdn& expected : kExpectedGdn) {
      Limits limits = testing::TestLimits();
      limits.gdn = expected.shape;
      ASSERT_TRUE(backend->Prepare(limits).ok());
      for (const int rows : {1, 64, kTokens}) {
        SCOPED_TRACE(name + " " + std::to_string(expected.shape.key_dim) + " " +
                     std::to_string(rows) + " rows");
        EXPECT_EQ(GdnDigest(*backend, expected.shape, rows), expected.digest);
      }
    }
  });
}

TEST(DigestTest, ExpertsAndGatesOnEveryTarget) {
  constexpr int kRows = 40;
  testing::ForEachTarget([](const std::string& name) {
    SCOPED_TRACE(name);
    for (const auto& [normalise, want] :
         {std::pair{true, std::uint64_t{0x455a69a019899670}},
          std::pair{false, std::uint64_t{0x28ba2a264b5498b6}}}) {
      const testing::MoeLayer layer({19, 4, normalise, 96, 64},
                                    WeightType::kBF16, 2);
      Random random(79);
      const auto logits = random.Floats(kRows * 20, 5.0f);
      const auto x = random.Floats(kRows * 96);
      auto out = layer.Run(logits, 20, x);
      layer.backend->AddGated(out.data(), x.data(), &logits[19], 20, kRows, 96);
      layer.backend->SigmoidMul(out.data(), x.data(), 96, kRows, 96);
      for (const float value : out) EXPECT_TRUE(std::isfinite(value));
      EXPECT_EQ(Of(out), want);
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
