#include "kernels/host/quant_format.h"

#include <cstring>

namespace holdfast::kernels {
namespace {

unsigned At(const std::byte* from, int index) {
  return static_cast<unsigned>(from[index]);
}

// Where the pieces of a file's block lie.
struct FileLayout {
  int halves = 1;  // f16 scale, f16 minimum
  int halves_at = 0;
  int scales = 0;  // bytes of the groups' scales
  int scales_at = 0;
  int low_at = 0;  // nibbles or bytes
  int high_at = 0;
};

constexpr FileLayout LayoutOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_1:
      return {.halves = 2, .low_at = 4};
    case WeightType::kQ5_0:
      return {.low_at = 6, .high_at = 2};
    case WeightType::kQ5_1:
      return {.halves = 2, .low_at = 8, .high_at = 4};
    case WeightType::kQ4_K:
      return {.halves = 2, .scales = 12, .scales_at = 4, .low_at = 16};
    case WeightType::kQ5_K:
      return {.halves = 2,
              .scales = 12,
              .scales_at = 4,
              .low_at = 48,
              .high_at = 16};
    case WeightType::kQ6_K:
      return {.halves_at = 208,
              .scales = 16,
              .scales_at = 192,
              .low_at = 0,
              .high_at = 128};
    case WeightType::kF8E4M3:
      return {.halves = 0};
    default:
      return {.low_at = 2};
  }
}

// Nibbles of 2 x half numbers, the second half in the high nibbles.
void Nibbles(const std::byte* low, int half, std::uint8_t* q) {
  for (int i = 0; i < half; ++i) {
    q[i] = static_cast<std::uint8_t>(At(low, i) & 15u);
    q[half + i] = static_cast<std::uint8_t>(At(low, i) >> 4);
  }
}

// Adds `bits` bits, from bit `from` of each byte, to `count` numbers.
void HighBits(const std::byte* high, int from, int bits, int count,
              std::uint8_t* q) {
  const unsigned mask = (1u << bits) - 1;
  for (int i = 0; i < count; ++i) q[i] |= (At(high, i) >> from & mask) << 4;
}

// The integers of a block of nibbles, not yet offset; of Q5_0 and Q5_1 without
// their fifth bits.
void Integers(WeightType type, const std::byte* low, const std::byte* high,
              std::uint8_t* q) {
  switch (type) {
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      for (int k = 0; k < 256; k += 64) Nibbles(low + k / 2, 32, q + k);
      if (type == WeightType::kQ4_K) return;
      for (int g = 0; g < 8; ++g) HighBits(high, g, 1, 32, q + 32 * g);
      return;
    case WeightType::kQ6_K:
      for (int k = 0; k < 256; k += 128) Nibbles(low + k / 2, 64, q + k);
      for (int g = 0; g < 8; ++g) {
        HighBits(high + g / 4 * 32, g % 4 * 2, 2, 32, q + 32 * g);
      }
      return;
    default:
      Nibbles(low, 16, q);
      return;
  }
}

// The bits above the nibbles, lowest first.
template <int kBits>
void PackHighBits(int count, const std::uint8_t* q, int width, std::byte* to) {
  constexpr int kNumbers = 8 / kBits;  // of a byte
  for (int k = 0; k < count; k += kNumbers) {
    unsigned byte = 0;
    for (int i = 0; i < kNumbers; ++i) {
      byte |= static_cast<unsigned>(q[k + i] >> 4) << i * kBits;
    }
    *to = static_cast<std::byte>(byte);
    to += width;
  }
}

template <WeightType kType>
void PackNibbleGroup(const std::uint8_t* q, const std::byte* high, int width,
                     std::byte* to) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kFormat.block == 32) {  // in our order in the file too
    for (int i = 0; i < 4 * kFormat.high_bits; ++i, to += width) *to = high[i];
  } else if constexpr (kFormat.high_bits > 0) {
    PackHighBits<kFormat.high_bits>(kFormat.group, q, width, to);
    to += kFormat.group * kFormat.high_bits / 8 * width;
  }
  for (int k = 0; k < kFormat.group; k += 2) {
    *to = static_cast<std::byte>((q[k] & 15u) | (q[k + 1] & 15u) << 4);
    to += width;
  }
}

template <WeightType kType>
void PackBlockOf(const FileBlock& from, int width, int column,
                 std::byte* block) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  constexpr FileLayout kLayout = LayoutOf(kType);
  for (int i = 0; i < kLayout.halves; ++i) {
    std::memcpy(block + (i * width + column) * 2,
                from.data + kLayout.halves_at + 2 * i, 2);
  }
  std::byte* scales = block + 2 * kLayout.halves * width + column;
  for (int i = 0; i < kLayout.scales; ++i) {
    scales[i * width] = from.data[kLayout.scales_at + i];
  }
  if constexpr (kType == WeightType::kF8E4M3) {
    std::memcpy(block + column * sizeof(float), &from.scale, sizeof(float));
  }
  std::byte* values = block + kFormat.header_bytes * width + column;
  const std::byte* low = from.data + kLayout.low_at;
  if constexpr (!kFormat.nibbles) {
    for (int k = 0; k < from.count; ++k) values[k * width] = low[k];
  } else {
    std::uint8_t q[kFormat.block];
    const std::byte* high = from.data + kLayout.high_at;
    Integers(kType, low, high, q);
    for (int k = 0; k < kFormat.block; k += kFormat.group) {
      PackNibbleGroup<kType>(q + k, high, width, values);
      values += QuantGroupBytes(kType) * width;
    }
  }
}

}  // namespace

void PackQuantBlock(WeightType type, const FileBlock& from, int width,
                    int column, std::byte* block) {
  switch (type) {
#define HF_TYPE(type)                                            \
  case WeightType::type:                                         \
    if constexpr (IsQuantised(WeightType::type)) {               \
      PackBlockOf<WeightType::type>(from, width, column, block); \
    }                                                            \
    return;
    HF_EVERY_WEIGHT_TYPE(HF_TYPE)
#undef HF_TYPE
  }
}

}  // namespace holdfast::kernels
