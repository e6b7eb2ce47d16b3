// How the CUDA backend holds weights: rows as in the file, each in its storage
// format, in planes so that a warp's loads are aligned and next to each other.
//
// Plane `low`: of F32, F16 and BF16 the numbers; of Q8_0 and F8_E4M3 a byte a
// number; else nibbles, byte i with number 2i in its low half. Plane `high`:
// the further bits of nibbles, packed from the lowest bit upwards. Plane
// `head`:
//   Q8_0, Q4_0, Q5_0  f16 scale of 32 numbers
//   Q4_1, Q5_1        f16 scale, f16 minimum of 32 numbers
//   Q4_K, Q5_K        f16 scale, f16 minimum, 12 bytes: the file's 6-bit scales
//                     and minima of 8 groups of 32 numbers
//   Q6_K              f16 scale, 2 bytes of zeros, int8 scale[16] of 16 numbers
//   F8_E4M3           f32 scale of 128 numbers
// Numbers past a row's end, up to a multiple of 8, are zeros.
#ifndef HOLDFAST_KERNELS_CUDA_WEIGHTS_H_
#define HOLDFAST_KERNELS_CUDA_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/host/quant_format.h"

namespace holdfast::kernels::cuda {

// What a thread takes at a time.
inline constexpr int kDecodeNumbers = 8;

// One tensor in device memory. Strides are of rows, in bytes.
struct WeightView {
  WeightType type = WeightType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::uint8_t* low = nullptr;
  const std::uint8_t* high = nullptr;
  const std::uint8_t* head = nullptr;
  std::int64_t low_stride = 0;
  std::int64_t high_stride = 0;
  std::int64_t head_stride = 0;
};

constexpr std::int64_t PaddedCols(std::int64_t cols) {
  return (cols + kDecodeNumbers - 1) / kDecodeNumbers * kDecodeNumbers;
}

// Numbers that share one entry of the head plane, and its bytes; 0: none.
struct HeadFormat {
  int numbers = 0;
  int bytes = 0;
};
constexpr HeadFormat HeadOf(WeightType type) {
  const QuantFormat format = FormatOf(type);
  if (format.block == 0) return {};
  if (type == WeightType::kQ6_K) return {format.block, 20};
  return {format.block, format.header_bytes};
}

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_WEIGHTS_H_
