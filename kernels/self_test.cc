#include "kernels/self_test.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared/cache_layout.h"

namespace holdfast::kernels {
namespace {

using Take = std::function<void(std::span<const std::byte>)>;

// More than two blocks of widened weights, and a multiple of every type's
// block.
constexpr int kCols = 512;
constexpr int kScaleBlock = 128;  // of FP8
// Panels in pairs, one alone and one that is not full.
constexpr int kOutputs = 150;
// One, few, and row tiles of which the last is not full.
constexpr int kProductRows[] = {1, 3, 37};
constexpr int kMostProductRows = 37;
// Two tiles of keys, the second a part.
constexpr int kTokens = 290;
constexpr int kDecodeTokens = 3;
constexpr int kOddCols = 101;  // no multiple of any vector

struct HeadShape {
  int heads;
  int kv_heads;
  int head_dim;
};
constexpr HeadShape kHeadShapes[] = {{6, 2, 64}, {2, 1, 128}, {4, 1, 256}};

constexpr GdnShape kGdnShape = {2, 4, 128, 128};
constexpr MoeShape kMoeShape = {11, 3, true, 64, 96};

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}

  std::uint32_t Bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }

  // In [-1, 1).
  std::vector<float> Floats(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>(Bits() >> 7) * 0x1p-23f - 1.0f;
    }
    return values;
  }

  // A tensor's bytes, whatever its type: all numbers are finite.
  std::vector<std::byte> Weights(WeightType type, int rows) {
    std::vector<std::byte> bytes(WeightRowBytes(type, kCols) * rows);
    const std::size_t number = WeightRowBytes(type, 1);  // 0: quantised
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::uint32_t bits = Bits() >> 8;
      if (type == WeightType::kF8E4M3) {
        bits &= 0xbf;  // magnitudes below 2, no NaN
      } else if (number != 0) {
        // The byte of sign and exponent: magnitudes below 2.
        if (i % number == number - 1) bits = (bits & 0x83) | 0x3c;
      } else if (i % 2 == 1) {
        bits &= 0xbf;  // scales, at even offsets, are halves below 2
      }
      bytes[i] = static_cast<std::byte>(bits);
    }
    return bytes;
  }

 private:
  std::uint64_t state_;
};

void Give(const Take& take, std::span<const float> values) {
  take(std::as_bytes(values));
}

Limits SelfTestLimits() {
  Limits limits;
  limits.max_rows = kTokens;
  limits.max_cols = kCols;
  limits.max_vocab = kOutputs;
  for (const HeadShape& shape : kHeadShapes) {
    limits.max_heads = std::max(limits.max_heads, shape.heads);
    limits.max_head_dim = std::max(limits.max_head_dim, shape.head_dim);
  }
  limits.max_positions = kTokens + kDecodeTokens;
  limits.gdn = kGdnShape;
  limits.moe = kMoeShape;
  return limits;
}

Status Products(Backend& backend, WeightType type, const Take& take) {
  Numbers numbers(100 + static_cast<int>(type));
  const auto bytes = numbers.Weights(type, kOutputs);
  WeightTensor tensor;
  tensor.name = "self-test.weight";
  tensor.type = type;
  tensor.rows = kOutputs;
  tensor.cols = kCols;
  tensor.data = bytes.data();
  if (type == WeightType::kF8E4M3) {
    tensor.scale_rows = kScaleBlock;
    tensor.scale_cols = kScaleBlock;
    tensor.scales = numbers.Floats((kOutputs + kScaleBlock - 1) / kScaleBlock *
                                   (kCols / kScaleBlock));
  }
  HF_ASSIGN_OR_RETURN(const auto matrix, backend.PackMatrix({&tensor, 1}));
  const auto x = numbers.Floats(kMostProductRows * kCols);
  const auto bias = numbers.Floats(kOutputs);
  std::vector<float> y(kMostProductRows * kOutputs);
  for (const int rows : kProductRows) {
    backend.MatMul(*matrix, x.data(), rows, bias.data(), y.data());
    Give(take, {y.data(), static_cast<std::size_t>(rows) * kOutputs});
  }
  std::vector<std::int32_t> ids;
  for (int id = 0; id < kOutputs; id += 7) ids.push_back(id);
  std::vector<float> rows(ids.size() * kCols);
  backend.EmbedRows(*matrix, ids, rows.data());
  Give(take, rows);
  return backend.Synchronize();
}

Status Rows(Backend& backend, const Take& take) {
  constexpr int kRows = 19;
  Numbers numbers(200);
  const auto x = numbers.Floats(kRows * kOddCols);
  const auto weight = numbers.Floats(kOddCols);
  std::vector<float> y(x.size());
  backend.RmsNorm(x.data(), weight.data(), 1e-5f, kRows, kOddCols, y.data());
  Give(take, y);
  backend.Add(y.data(), x.data(), kRows, kOddCols);
  Give(take, y);
  auto wide = numbers.Floats(2 * kRows * kOddCols);
  for (float& value : wide) value *= 90.0f;  // to both ends of exp's range
  backend.SiluMul(wide.data(), kRows, kOddCols, y.data());
  Give(take, y);
  return backend.Synchronize();
}

// Norm, rotation, rows of the pool and attention of one layer, in a prefill and
// single rows after it.
Status Layer(Backend& backend, const HeadShape& heads, StateType state,
             const Take& take) {
  Numbers numbers(300 + heads.head_dim);
  const int joined = (heads.heads + 2 * heads.kv_heads) * heads.head_dim;
  const int rotated = heads.heads + heads.kv_heads;
  const auto weight = numbers.Floats(heads.head_dim);
  std::vector<float> frequencies;
  for (int i = 0; i < heads.head_dim / 4; ++i) {  // half of the head rotates
    frequencies.push_back(1.0f / static_cast<float>(1 + i * i));
  }
  HF_ASSIGN_OR_RETURN(
      const auto table,
      backend.MakeRopeTable(frequencies, kTokens + kDecodeTokens));

  const KvShape shape = {1, heads.kv_heads, heads.head_dim, state};
  const std::size_t block_bytes = 2 * shape.TokenBytes() * kBlockTokens;
  HF_ASSIGN_OR_RETURN(const auto pool, backend.Allocate(3 * block_bytes));
  auto* const memory = static_cast<std::byte*>(pool->data());
  std::byte* const blocks[] = {memory, memory + block_bytes};
  std::byte* const copy = memory + 2 * block_bytes;

  int position = 0;
  while (position < kTokens + kDecodeTokens) {
    const int rows = position == 0 ? kTokens : 1;
    auto q = numbers.Floats(static_cast<std::size_t>(rows) * joined);
    std::vector<float> out(static_cast<std::size_t>(rows) * heads.heads *
                           heads.head_dim);
    const RowSpan span = {blocks, 0, position, rows};
    backend.HeadNorm(q.data(), weight.data(), 1e-6f, rows, joined, rotated,
                     heads.head_dim);
    backend.Rope(q.data(), joined, rotated, heads.head_dim, *table, {&span, 1});
    backend.StoreKv(shape, 0, &q[heads.heads * heads.head_dim],
                    &q[rotated * heads.head_dim], joined, {&span, 1});
    backend.Attention(shape, 0, q.data(), joined, heads.heads, 0.5f, {&span, 1},
                      out.data());
    Give(take, out);
    position += rows;
  }
  take({blocks[0], block_bytes});
  const int rest = position - kBlockTokens;
  std::fill_n(copy, block_bytes, std::byte{0x55});
  backend.CopyBlockRows(shape, blocks[1], rest, copy);
  backend.ZeroBlockRows(shape, copy, rest);
  take({copy, block_bytes});
  return backend.Synchronize();
}

// One gated delta net layer, in a prefill and single rows after it: outputs,
// then the state.
Status RecurrentLayer(Backend& backend, StateType state, const Take& take) {
  GdnShape shape = kGdnShape;
  shape.state_type = state;
  Numbers numbers(400);
  const auto conv = numbers.Floats(kConvTaps * shape.Channels());
  auto rates = numbers.Floats(shape.value_heads);
  for (float& rate : rates) rate *= -rate;
  const auto bias = numbers.Floats(shape.value_heads);
  const auto norm = numbers.Floats(shape.value_dim);
  const GdnWeights weights = {conv.data(), rates.data(), bias.data(),
                              norm.data(), 1e-6f};
  const GdnPlace place = {shape.StateBytes(), 0};
  const std::size_t bytes = shape.StateBytes() + shape.TailBytes();
  HF_ASSIGN_OR_RETURN(const auto sections, backend.Allocate(bytes));
  auto* const memory = static_cast<std::byte*>(sections->data());
  std::fill_n(memory, bytes, std::byte{0x55});  // not read
  int position = 0;
  while (position < kTokens + kDecodeTokens) {
    const int rows = position == 0 ? kTokens : 1;
    auto projected =
        numbers.Floats(static_cast<std::size_t>(rows) * shape.ProjectedWidth());
    std::vector<float> out(static_cast<std::size_t>(rows) * shape.ValueWidth());
    const RowSpan span = {nullptr, 0, position, rows, memory};
    backend.GatedDeltaNet(shape, weights, place, projected.data(),
                          shape.ProjectedWidth(), {&span, 1}, out.data());
    Give(take, out);
    position += rows;
  }
  take({memory, bytes});
  return backend.Synchronize();
}

Status Experts(Backend& backend, const Take& take) {
  constexpr int kRows = 40;
  const int stride = kMoeShape.experts + 1;
  Numbers numbers(500);
  std::vector<std::unique_ptr<Matrix>> matrices;
  const auto pack = [&](int rows, int cols) -> Status {
    const auto values = numbers.Floats(static_cast<std::size_t>(rows) * cols);
    WeightTensor tensor;
    tensor.name = "self-test.expert";
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.data = reinterpret_cast<const std::byte*>(values.data());
    HF_ASSIGN_OR_RETURN(auto matrix, backend.PackMatrix({&tensor, 1}));
    matrices.push_back(std::move(matrix));
    return OkStatus();
  };
  std::vector<ExpertWeights> experts;
  for (int e = 0; e < kMoeShape.experts; ++e) {
    HF_RETURN_IF_ERROR(pack(2 * kMoeShape.ffn, kMoeShape.hidden));
    HF_RETURN_IF_ERROR(pack(kMoeShape.hidden, kMoeShape.ffn));
    experts.push_back({matrices[2 * e].get(), matrices[2 * e + 1].get()});
  }
  auto logits = numbers.Floats(static_cast<std::size_t>(kRows) * stride);
  for (float& logit : logits) logit *= 50.0f;  // some weights underflow
  const auto x =
      numbers.Floats(static_cast<std::size_t>(kRows) * kMoeShape.hidden);
  std::vector<float> out(x.size());
  backend.MoeExperts(kMoeShape, experts, logits.data(), stride, x.data(), kRows,
                     out.data());
  Give(take, out);
  backend.AddGated(out.data(), x.data(), logits.data() + kMoeShape.experts,
                   stride, kRows, kMoeShape.hidden);
  Give(take, out);
  backend.SigmoidMul(out.data(), x.data(), kMoeShape.hidden, kRows,
                     kMoeShape.hidden);
  Give(take, out);
  return backend.Synchronize();
}

}  // namespace

Status RunSelfTest(Backend& backend, const Take& take) {
  HF_RETURN_IF_ERROR(backend.Prepare(SelfTestLimits()));
  for (const WeightType type : kSelfTestTypes) {
    HF_RETURN_IF_ERROR(Products(backend, type, take));
  }
  HF_RETURN_IF_ERROR(Rows(backend, take));
  for (const HeadShape& heads : kHeadShapes) {
    for (const StateType state : {StateType::kBF16, StateType::kF32}) {
      HF_RETURN_IF_ERROR(Layer(backend, heads, state, take));
    }
  }
  for (const StateType state : {StateType::kBF16, StateType::kF32}) {
    HF_RETURN_IF_ERROR(RecurrentLayer(backend, state, take));
  }
  HF_RETURN_IF_ERROR(Experts(backend, take));
  return OkStatus();
}

}  // namespace holdfast::kernels
