#include "kernels/host/quant_format.h"

#include <cstring>

namespace holdfast::kernels {
namespace {

constexpr int kLargestBlock = 256;

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

FileLayout LayoutOf(WeightType type) {
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

// The integers of a block of nibbles, not yet offset.
void Integers(WeightType type, const std::byte* low, const std::byte* high,
              std::uint8_t* q) {
  switch (type) {
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
      Nibbles(low, 16, q);
      for (int k = 0; k < 32; ++k) q[k] |= (At(high, k / 8) >> k % 8 & 1u) << 4;
      return;
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      for (int k = 0; k < 256; k += 64) Nibbles(low + k / 2, 32, q + k);
      if (type == WeightType::kQ4_K) return;
      for (int k = 0; k < 256; ++k) {
        q[k] |= (At(high, k % 32) >> k / 32 & 1u) << 4;
      }
      return;
    case WeightType::kQ6_K:
      for (int k = 0; k < 256; k += 128) Nibbles(low + k / 2, 64, q + k);
      for (int k = 0; k < 256; ++k) {
        const unsigned byte = At(high, k / 128 * 32 + k % 32);
        q[k] |= (byte >> k % 128 / 32 * 2 & 3u) << 4;
      }
      return;
    default:
      Nibbles(low, 16, q);
      return;
  }
}

void PackNibbleGroup(const QuantFormat& format, const std::uint8_t* q,
                     int width, std::byte* to) {
  if (format.high_bits > 0) {
    const int numbers = 8 / format.high_bits;  // of a byte
    for (int k = 0; k < format.group; k += numbers) {
      unsigned byte = 0;
      for (int i = 0; i < numbers; ++i) {
        byte |= static_cast<unsigned>(q[k + i] >> 4) << i * format.high_bits;
      }
      *to = static_cast<std::byte>(byte);
      to += width;
    }
  }
  for (int k = 0; k < format.group; k += 2) {
    *to = static_cast<std::byte>((q[k] & 15u) | (q[k + 1] & 15u) << 4);
    to += width;
  }
}

}  // namespace

void PackQuantBlock(WeightType type, const FileBlock& from, int width,
                    int column, std::byte* block) {
  const QuantFormat format = FormatOf(type);
  const FileLayout layout = LayoutOf(type);
  for (int i = 0; i < layout.halves; ++i) {
    std::memcpy(block + (i * width + column) * 2,
                from.data + layout.halves_at + 2 * i, 2);
  }
  std::byte* scales = block + 2 * layout.halves * width + column;
  for (int i = 0; i < layout.scales; ++i) {
    scales[i * width] = from.data[layout.scales_at + i];
  }
  if (type == WeightType::kF8E4M3) {
    std::memcpy(block + column * sizeof(float), &from.scale, sizeof(float));
  }
  std::byte* values = block + format.header_bytes * width + column;
  const std::byte* low = from.data + layout.low_at;
  if (!format.nibbles) {
    for (int k = 0; k < from.count; ++k) values[k * width] = low[k];
    return;
  }
  std::uint8_t q[kLargestBlock];
  Integers(type, low, from.data + layout.high_at, q);
  for (int k = 0; k < format.block; k += format.group) {
    PackNibbleGroup(format, q + k, width, values);
    values += QuantGroupBytes(type) * width;
  }
}

}  // namespace holdfast::kernels
