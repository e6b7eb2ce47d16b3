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

// The backend's memory of one test, and the way back of what it computed.
class Space {
 public:
  Space(Backend& backend, const Take& take) : backend_(backend), take_(take) {}

  // Zeros.
  template <typename T>
  StatusOr<T*> Room(std::size_t count) {
    HF_ASSIGN_OR_RETURN(auto buffer, backend_.Allocate(count * sizeof(T)));
    buffers_.push_back(std::move(buffer));
    return static_cast<T*>(buffers_.back()->data());
  }
  StatusOr<float*> Copy(const std::vector<float>& numbers) {
    HF_ASSIGN_OR_RETURN(float* const room, Room<float>(numbers.size()));
    HF_RETURN_IF_ERROR(
        backend_.Write(numbers.data(), numbers.size() * sizeof(float), room));
    return room;
  }
  Status Fill(std::byte* to, std::size_t bytes, std::byte with) {
    const std::vector<std::byte> pattern(bytes, with);
    return backend_.Write(pattern.data(), bytes, to);
  }
  template <typename T>
  Status Give(const T* from, std::size_t count) {
    std::vector<std::byte> bytes(count * sizeof(T));
    backend_.Read(from, bytes.size(), bytes.data());
    HF_RETURN_IF_ERROR(backend_.Synchronize());
    take_(bytes);
    return OkStatus();
  }

 private:
  Backend& backend_;
  const Take& take_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

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
  Space space(backend, take);
  HF_ASSIGN_OR_RETURN(const float* const x,
                      space.Copy(numbers.Floats(kMostProductRows * kCols)));
  HF_ASSIGN_OR_RETURN(const float* const bias,
                      space.Copy(numbers.Floats(kOutputs)));
  HF_ASSIGN_OR_RETURN(float* const y,
                      space.Room<float>(kMostProductRows * kOutputs));
  for (const int rows : kProductRows) {
    backend.MatMul(*matrix, x, rows, bias, y);
    HF_RETURN_IF_ERROR(
        space.Give(y, static_cast<std::size_t>(rows) * kOutputs));
  }
  std::vector<std::int32_t> ids;
  for (int id = 0; id < kOutputs; id += 7) ids.push_back(id);
  HF_ASSIGN_OR_RETURN(float* const rows, space.Room<float>(ids.size() * kCols));
  backend.EmbedRows(*matrix, ids, rows);
  return space.Give(rows, ids.size() * kCols);
}

Status Rows(Backend& backend, const Take& take) {
  constexpr int kRows = 19;
  Numbers numbers(200);
  constexpr int kCount = kRows * kOddCols;
  Space space(backend, take);
  HF_ASSIGN_OR_RETURN(const float* const x, space.Copy(numbers.Floats(kCount)));
  HF_ASSIGN_OR_RETURN(const float* const weight,
                      space.Copy(numbers.Floats(kOddCols)));
  HF_ASSIGN_OR_RETURN(float* const y, space.Room<float>(kCount));
  backend.RmsNorm(x, weight, 1e-5f, kRows, kOddCols, y);
  HF_RETURN_IF_ERROR(space.Give(y, kCount));
  backend.Add(y, x, kRows, kOddCols);
  HF_RETURN_IF_ERROR(space.Give(y, kCount));
  auto wide = numbers.Floats(2 * kCount);
  for (float& value : wide) value *= 90.0f;  // to both ends of exp's range
  HF_ASSIGN_OR_RETURN(const float* const gates, space.Copy(wide));
  backend.SiluMul(gates, kRows, kOddCols, y);
  return space.Give(y, kCount);
}

// Norm, rotation, rows of the pool and attention of one layer, in a prefill and
// single rows after it.
Status Layer(Backend& backend, const HeadShape& heads, StateType state,
             const Take& take) {
  Numbers numbers(300 + heads.head_dim);
  const int joined = (heads.heads + 2 * heads.kv_heads) * heads.head_dim;
  const int rotated = heads.heads + heads.kv_heads;
  Space space(backend, take);
  HF_ASSIGN_OR_RETURN(const float* const weight,
                      space.Copy(numbers.Floats(heads.head_dim)));
  std::vector<float> frequencies;
  for (int i = 0; i < heads.head_dim / 4; ++i) {  // half of the head rotates
    frequencies.push_back(1.0f / static_cast<float>(1 + i * i));
  }
  HF_ASSIGN_OR_RETURN(
      const auto table,
      backend.MakeRopeTable(frequencies, kTokens + kDecodeTokens));

  const KvShape shape = {1, heads.kv_heads, heads.head_dim, state};
  const std::size_t block_bytes = 2 * shape.TokenBytes() * kBlockTokens;
  HF_ASSIGN_OR_RETURN(std::byte* const memory,
                      space.Room<std::byte>(3 * block_bytes));
  std::byte* const blocks[] = {memory, memory + block_bytes};
  std::byte* const copy = memory + 2 * block_bytes;

  int position = 0;
  while (position < kTokens + kDecodeTokens) {
    const int rows = position == 0 ? kTokens : 1;
    HF_ASSIGN_OR_RETURN(
        float* const q,
        space.Copy(numbers.Floats(static_cast<std::size_t>(rows) * joined)));
    const std::size_t outputs =
        static_cast<std::size_t>(rows) * heads.heads * heads.head_dim;
    HF_ASSIGN_OR_RETURN(float* const out, space.Room<float>(outputs));
    const RowSpan span = {blocks, 0, position, rows};
    backend.HeadNorm(q, weight, 1e-6f, rows, joined, rotated, heads.head_dim);
    backend.Rope(q, joined, rotated, heads.head_dim, *table, {&span, 1});
    backend.StoreKv(shape, 0, q + heads.heads * heads.head_dim,
                    q + rotated * heads.head_dim, joined, {&span, 1});
    backend.Attention(shape, 0, q, joined, heads.heads, 0.5f, {&span, 1}, out);
    HF_RETURN_IF_ERROR(space.Give(out, outputs));
    position += rows;
  }
  HF_RETURN_IF_ERROR(space.Give(blocks[0], block_bytes));
  const int rest = position - kBlockTokens;
  HF_RETURN_IF_ERROR(space.Fill(copy, block_bytes, std::byte{0x55}));
  backend.CopyBlockRows(shape, blocks[1], rest, copy);
  backend.ZeroBlockRows(shape, copy, rest);
  return space.Give(copy, block_bytes);
}

// One gated delta net layer, in a prefill and single rows after it: outputs,
// then the state.
Status RecurrentLayer(Backend& backend, StateType state, const Take& take) {
  GdnShape shape = kGdnShape;
  shape.state_type = state;
  Numbers numbers(400);
  Space space(backend, take);
  HF_ASSIGN_OR_RETURN(const float* const conv,
                      space.Copy(numbers.Floats(kConvTaps * shape.Channels())));
  auto rates = numbers.Floats(shape.value_heads);
  for (float& rate : rates) rate *= -rate;
  HF_ASSIGN_OR_RETURN(const float* const decay, space.Copy(rates));
  HF_ASSIGN_OR_RETURN(const float* const bias,
                      space.Copy(numbers.Floats(shape.value_heads)));
  HF_ASSIGN_OR_RETURN(const float* const norm,
                      space.Copy(numbers.Floats(shape.value_dim)));
  const GdnWeights weights = {conv, decay, bias, norm, 1e-6f};
  const GdnPlace place = {shape.StateBytes(), 0};
  const std::size_t bytes = shape.StateBytes() + shape.TailBytes();
  HF_ASSIGN_OR_RETURN(std::byte* const memory, space.Room<std::byte>(bytes));
  HF_RETURN_IF_ERROR(space.Fill(memory, bytes, std::byte{0x55}));  // not read
  std::byte* const blocks[] = {memory, memory};                    // nor these
  int position = 0;
  while (position < kTokens + kDecodeTokens) {
    const int rows = position == 0 ? kTokens : 1;
    HF_ASSIGN_OR_RETURN(
        const float* const projected,
        space.Copy(numbers.Floats(static_cast<std::size_t>(rows) *
                                  shape.ProjectedWidth())));
    const std::size_t outputs =
        static_cast<std::size_t>(rows) * shape.ValueWidth();
    HF_ASSIGN_OR_RETURN(float* const out, space.Room<float>(outputs));
    const RowSpan span = {blocks, 0, position, rows, memory};
    backend.GatedDeltaNet(shape, weights, place, projected,
                          shape.ProjectedWidth(), {&span, 1}, out);
    HF_RETURN_IF_ERROR(space.Give(out, outputs));
    position += rows;
  }
  return space.Give(memory, bytes);
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
  auto host_logits = numbers.Floats(static_cast<std::size_t>(kRows) * stride);
  for (float& logit : host_logits) logit *= 50.0f;  // some weights underflow
  const std::size_t count = static_cast<std::size_t>(kRows) * kMoeShape.hidden;
  Space space(backend, take);
  HF_ASSIGN_OR_RETURN(const float* const logits, space.Copy(host_logits));
  HF_ASSIGN_OR_RETURN(const float* const x, space.Copy(numbers.Floats(count)));
  HF_ASSIGN_OR_RETURN(float* const out, space.Room<float>(count));
  backend.MoeExperts(kMoeShape, experts, logits, stride, x, kRows, out);
  HF_RETURN_IF_ERROR(space.Give(out, count));
  backend.AddGated(out, x, logits + kMoeShape.experts, stride, kRows,
                   kMoeShape.hidden);
  HF_RETURN_IF_ERROR(space.Give(out, count));
  backend.SigmoidMul(out, x, kMoeShape.hidden, kRows, kMoeShape.hidden);
  return space.Give(out, count);
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
