// How panels hold the numbers of each quantised type, and the integers of the
// files' blocks.
//
// A block is `block` numbers of k, `width` columns wide: the header, then
// groups of `group` numbers. Numbers of a group share a scale and a minimum.
// Header:
//   Q8_0, Q4_0, Q5_0  f16 scale[width]
//   Q4_1, Q5_1        f16 scale[width], f16 minimum[width]
//   Q4_K, Q5_K        f16 scale[width], f16 minimum[width], byte[12][width]:
//                     the file's 6-bit scales and minima of 8 groups
//   Q6_K              f16 scale[width], int8 scale[16 groups][width]
//   F8_E4M3           f32 scale[width]; the last block may be short
// Group of whole bytes (Q8_0, F8_E4M3): byte[group][width].
// Group of nibbles: high[group x high_bits / 8][width], nibbles[group / 2]
// [width]. Nibble byte i holds k = 2i in its low half, 2i + 1 in its high half;
// the further bits of every number are packed in `high` from the lowest bit
// upwards, k ascending.
#ifndef HOLDFAST_KERNELS_HOST_QUANT_FORMAT_H_
#define HOLDFAST_KERNELS_HOST_QUANT_FORMAT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace holdfast::kernels {

struct QuantFormat {
  int block = 0;         // 0: not quantised
  int group = 0;         // even
  int header_bytes = 0;  // of a column
  bool nibbles = false;  // else whole bytes
  int high_bits = 0;     // beyond the nibble
};

constexpr QuantFormat FormatOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
      return {};
    case WeightType::kQ8_0:
      return {32, 32, 2, false, 0};
    case WeightType::kQ4_0:
      return {32, 32, 2, true, 0};
    case WeightType::kQ4_1:
      return {32, 32, 4, true, 0};
    case WeightType::kQ5_0:
      return {32, 32, 2, true, 1};
    case WeightType::kQ5_1:
      return {32, 32, 4, true, 1};
    case WeightType::kQ4_K:
      return {256, 32, 16, true, 0};
    case WeightType::kQ5_K:
      return {256, 32, 16, true, 1};
    case WeightType::kQ6_K:
      return {256, 16, 18, true, 2};
    case WeightType::kF8E4M3:
      return {128, 32, 4, false, 0};
  }
  return {};
}

// M(name) for each weight type.
// clang-format off
#define HF_EVERY_WEIGHT_TYPE(M)                                          \
  M(kF32) M(kF16) M(kBF16) M(kQ8_0) M(kQ4_0) M(kQ4_1) M(kQ5_0) M(kQ5_1)  \
  M(kQ4_K) M(kQ5_K) M(kQ6_K) M(kF8E4M3)
// clang-format on

constexpr bool IsQuantised(WeightType type) { return FormatOf(type).block > 0; }

// Whether a number is fma(q, scale, minimum).
constexpr bool HasMinimum(WeightType type) {
  return type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ||
         type == WeightType::kQ4_K || type == WeightType::kQ5_K;
}

// Bytes of one column in a group, and in a whole block.
constexpr std::size_t QuantGroupBytes(WeightType type) {
  const QuantFormat format = FormatOf(type);
  return format.nibbles ? format.group / 2 + format.group * format.high_bits / 8
                        : format.group;
}
constexpr std::size_t QuantBlockBytes(WeightType type) {
  const QuantFormat format = FormatOf(type);
  return format.header_bytes +
         format.block / format.group * QuantGroupBytes(type);
}

// A block of one row, as the file has it (of F8_E4M3 `count` bytes and their
// scale, of others `count` is the block), becomes column `column` of a panel's
// block.
struct FileBlock {
  const std::byte* data = nullptr;
  int count = 0;
  float scale = 0.0f;  // of F8_E4M3
};
void PackQuantBlock(WeightType type, const FileBlock& from, int width,
                    int column, std::byte* block);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_QUANT_FORMAT_H_
