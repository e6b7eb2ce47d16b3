#include "kernels/host/kv_rows.h"

#include <cstdint>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/host/kv_layout.h"

namespace holdfast::kernels {
namespace {

void WriteBf16(const KvShape& shape, int token, const float* k, const float* v,
               std::uint16_t* k_rows, std::uint16_t* v_rows) {
  const int dims = shape.head_dim;
  for (int head = 0; head < shape.kv_heads; ++head) {
    std::uint16_t* k_out = k_rows + KIndex(shape, token, head, 0);
    std::uint16_t* v_out = v_rows + VIndex(shape, token, head, 0);
    const float* k_in = k + static_cast<std::size_t>(head) * dims;
    const float* v_in = v + static_cast<std::size_t>(head) * dims;
    for (int dim = 0; dim < dims; dim += 2) {
      k_out[dim * kGranuleTokens] = FloatToBf16(k_in[dim]);
      k_out[dim * kGranuleTokens + 1] = FloatToBf16(k_in[dim + 1]);
    }
    for (int dim = 0; dim < dims; ++dim) v_out[dim] = FloatToBf16(v_in[dim]);
  }
}

void WriteF32(const KvShape& shape, int token, const float* k, const float* v,
              float* k_rows, float* v_rows) {
  const int dims = shape.head_dim;
  for (int head = 0; head < shape.kv_heads; ++head) {
    float* k_out = k_rows + KIndex(shape, token, head, 0);
    const float* k_in = k + static_cast<std::size_t>(head) * dims;
    for (int dim = 0; dim < dims; ++dim) {
      k_out[dim * kGranuleTokens] = k_in[dim];
    }
  }
  std::memcpy(v_rows + VIndex(shape, token, 0, 0), v, shape.TokenBytes());
}

// Zeroes the lanes of tokens from `lane` on in one granule of K.
void ZeroLanes(const KvShape& shape, int lane, std::byte* granule) {
  // A token has a pair of bf16 or one float in each run of 16.
  constexpr std::size_t kLaneBytes = 4;
  const std::size_t run = kLaneBytes * kGranuleTokens;
  const std::size_t bytes = shape.TokenBytes() * kGranuleTokens;
  for (std::size_t at = 0; at < bytes; at += run) {
    std::memset(granule + at + lane * kLaneBytes, 0, run - lane * kLaneBytes);
  }
}

}  // namespace

void WriteKvRow(const KvShape& shape, int layer, int token, const float* k,
                const float* v, std::byte* block) {
  std::byte* k_rows = block + KOffset(shape, layer);
  std::byte* v_rows = block + VOffset(shape, layer);
  if (shape.state_type == StateType::kBF16) {
    WriteBf16(shape, token, k, v, reinterpret_cast<std::uint16_t*>(k_rows),
              reinterpret_cast<std::uint16_t*>(v_rows));
  } else {
    WriteF32(shape, token, k, v, reinterpret_cast<float*>(k_rows),
             reinterpret_cast<float*>(v_rows));
  }
}

void CopyRows(const KvShape& shape, const std::byte* from, int rows,
              std::byte* to) {
  const int granules = (rows + kGranuleTokens - 1) / kGranuleTokens;
  const std::size_t bytes = shape.TokenBytes() * kGranuleTokens * granules;
  for (int run = 0; run < 2 * shape.layers; ++run) {
    const std::size_t offset = LayerBytes(shape) * run;
    std::memcpy(to + offset, from + offset, bytes);
  }
}

void ZeroRows(const KvShape& shape, std::byte* block, int first_row) {
  const std::size_t token_bytes = shape.TokenBytes();
  const std::size_t layer_bytes = LayerBytes(shape);
  const int lane = first_row % kGranuleTokens;
  const int granule = first_row / kGranuleTokens;
  const std::size_t granule_bytes = token_bytes * kGranuleTokens;
  // The first granule of K that is cleared whole.
  const std::size_t whole = granule_bytes * (granule + (lane != 0 ? 1 : 0));
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::byte* k_rows = block + KOffset(shape, layer);
    if (lane != 0) ZeroLanes(shape, lane, k_rows + granule_bytes * granule);
    std::memset(k_rows + whole, 0, layer_bytes - whole);
    const std::size_t v_start = token_bytes * first_row;
    std::memset(block + VOffset(shape, layer) + v_start, 0,
                layer_bytes - v_start);
  }
}

}  // namespace holdfast::kernels
