#include "engine/model/testing/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/model/testing/quantize_k.h"
#include "kernels/float16.h"

namespace holdfast::model::testing {
namespace {

using kernels::WeightType;

constexpr std::size_t kBlock = 32;

void AppendU16(std::uint16_t value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

int Quantum(float value, float inverse, int low, int high) {
  return std::clamp(static_cast<int>(std::lround(value * inverse)), low, high);
}

float Inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

// Low nibbles hold the first 16 numbers, high ones the rest.
void AppendNibbles(const int* quanta, std::string* out) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    *out += static_cast<char>(quanta[i] | (quanta[i + kBlock / 2] << 4));
  }
}

void AppendQ8(std::span<const float> x, std::string* out) {
  float largest = 0;
  for (float value : x) largest = std::max(largest, std::fabs(value));
  const std::uint16_t scale = FloatToF16(largest / 127);
  const float inverse = Inverse(kernels::F16ToFloat(scale));
  AppendU16(scale, out);
  for (float value : x) {
    *out += static_cast<char>(Quantum(value, inverse, -127, 127));
  }
}

// Appends the scale; quanta from 0 to 2 half - 1, half standing for zero. The
// number of largest magnitude becomes 0.
void SymmetricQuanta(std::span<const float> x, int half, int* quanta,
                     std::string* out) {
  const float peak = *std::max_element(
      x.begin(), x.end(),
      [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const std::uint16_t scale = FloatToF16(peak / -half);
  const float inverse = Inverse(kernels::F16ToFloat(scale));
  AppendU16(scale, out);
  for (std::size_t i = 0; i < kBlock; ++i) {
    quanta[i] = Quantum(x[i], inverse, -half, half - 1) + half;
  }
}

// Appends scale and minimum; quanta from 0 to top.
void AffineQuanta(std::span<const float> x, int top, int* quanta,
                  std::string* out) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const std::uint16_t scale = FloatToF16((*high - *low) / top);
  const std::uint16_t minimum = FloatToF16(*low);
  const float inverse = Inverse(kernels::F16ToFloat(scale));
  const float base = kernels::F16ToFloat(minimum);
  AppendU16(scale, out);
  AppendU16(minimum, out);
  for (std::size_t i = 0; i < kBlock; ++i) {
    quanta[i] = Quantum(x[i] - base, inverse, 0, top);
  }
}

void AppendQ40(std::span<const float> x, std::string* out) {
  int quanta[kBlock];
  SymmetricQuanta(x, 8, quanta, out);
  AppendNibbles(quanta, out);
}

void AppendQ41(std::span<const float> x, std::string* out) {
  int quanta[kBlock];
  AffineQuanta(x, 15, quanta, out);
  AppendNibbles(quanta, out);
}

// Bit 4 of each number, in 4 bytes.
void AppendFifthBits(const int* quanta, std::string* out) {
  for (std::size_t i = 0; i < kBlock; i += 8) {
    int byte = 0;
    for (int bit = 0; bit < 8; ++bit) byte |= quanta[i + bit] / 16 << bit;
    *out += static_cast<char>(byte);
  }
}

void AppendFiveBits(int* quanta, std::string* out) {
  AppendFifthBits(quanta, out);
  for (std::size_t i = 0; i < kBlock; ++i) quanta[i] %= 16;
  AppendNibbles(quanta, out);
}

void AppendQ50(std::span<const float> x, std::string* out) {
  int quanta[kBlock];
  SymmetricQuanta(x, 16, quanta, out);
  AppendFiveBits(quanta, out);
}

void AppendQ51(std::span<const float> x, std::string* out) {
  int quanta[kBlock];
  AffineQuanta(x, 31, quanta, out);
  AppendFiveBits(quanta, out);
}

// Every magnitude of F8_E4M3, ascending; a number's place is its code.
std::vector<float> MagnitudesOfF8() {
  std::vector<float> magnitudes;
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code / 8;
    magnitudes.push_back(
        exponent == 0
            ? std::ldexp(static_cast<float>(code), -9)
            : std::ldexp(static_cast<float>(8 + code % 8), exponent - 10));
  }
  return magnitudes;
}
constexpr float kLargestF8 = 448;
constexpr std::int64_t kF8Block = 128;

float HalfAt(const char* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return kernels::F16ToFloat(bits);
}

// Quantum k of a block of nibbles.
int NibbleAt(const char* nibbles, std::size_t k) {
  const auto byte = static_cast<unsigned char>(nibbles[k % (kBlock / 2)]);
  return k < kBlock / 2 ? byte & 15 : byte >> 4;
}

// 16 where the bit is set.
int FifthBitAt(const char* bits, std::size_t k) {
  return (static_cast<unsigned char>(bits[k / 8]) >> k % 8 & 1) * 16;
}

void WidenBlock(WeightType type, const char* block, std::vector<float>* out) {
  const float scale = HalfAt(block);
  for (std::size_t k = 0; k < kBlock; ++k) {
    if (type == WeightType::kQ8_0) {
      out->push_back(scale * static_cast<signed char>(block[2 + k]));
    } else if (type == WeightType::kQ5_0) {
      const int q = NibbleAt(block + 6, k) + FifthBitAt(block + 2, k);
      out->push_back(scale * static_cast<float>(q - 16));
    } else if (type == WeightType::kQ5_1) {
      const int q = NibbleAt(block + 8, k) + FifthBitAt(block + 4, k);
      out->push_back(scale * static_cast<float>(q) + HalfAt(block + 2));
    } else if (type == WeightType::kQ4_0) {
      out->push_back(scale * static_cast<float>(NibbleAt(block + 2, k) - 8));
    } else {  // one rounding: scale x quantum is exact in float
      out->push_back(scale * static_cast<float>(NibbleAt(block + 4, k)) +
                     HalfAt(block + 2));
    }
  }
}

}  // namespace

std::uint16_t FloatToF16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {  // subnormal: units of 2^-24
    const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
    return sign | static_cast<std::uint16_t>(std::nearbyint(units));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

std::string Store(WeightType type, std::span<const float> values) {
  std::string out;
  switch (type) {
    case WeightType::kF32:
      out.assign(reinterpret_cast<const char*>(values.data()),
                 values.size_bytes());
      return out;
    case WeightType::kF16:
      for (float value : values) AppendU16(FloatToF16(value), &out);
      return out;
    case WeightType::kBF16:
      for (float value : values) AppendU16(kernels::FloatToBf16(value), &out);
      return out;
    default:
      break;
  }
  const auto size = static_cast<std::size_t>(kernels::WeightBlock(type));
  for (std::size_t at = 0; at + size <= values.size(); at += size) {
    const auto block = values.subspan(at, size);
    if (size == kBlockOfK) AppendBlockOfK(type, block, &out);
    if (type == WeightType::kQ5_0) AppendQ50(block, &out);
    if (type == WeightType::kQ5_1) AppendQ51(block, &out);
    if (type == WeightType::kQ8_0) AppendQ8(block, &out);
    if (type == WeightType::kQ4_0) AppendQ40(block, &out);
    if (type == WeightType::kQ4_1) AppendQ41(block, &out);
  }
  return out;
}

std::vector<float> Widen(WeightType type, std::string_view bytes) {
  std::vector<float> out;
  if (type == WeightType::kF32) {
    out.resize(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
  }
  const int block = kernels::WeightBlock(type);
  const std::size_t step = kernels::WeightRowBytes(type, block);
  for (std::size_t at = 0; at + step <= bytes.size(); at += step) {
    const char* from = bytes.data() + at;
    if (block == kBlockOfK) {
      WidenBlockOfK(type, from, &out);
    } else if (block > 1) {
      WidenBlock(type, from, &out);
    } else if (type == WeightType::kF16) {
      out.push_back(HalfAt(from));
    } else {
      std::uint16_t bits;
      std::memcpy(&bits, from, sizeof bits);
      out.push_back(kernels::Bf16ToFloat(bits));
    }
  }
  return out;
}

F8Matrix StoreF8(std::span<const float> values, std::int64_t cols) {
  static const std::vector<float> magnitudes = MagnitudesOfF8();
  const std::int64_t across = (cols + kF8Block - 1) / kF8Block;
  const auto rows = static_cast<std::int64_t>(values.size()) / cols;
  const auto scale_of = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return at / cols / kF8Block * across + at % cols / kF8Block;
  };
  F8Matrix matrix;
  matrix.scales.resize((rows + kF8Block - 1) / kF8Block * across);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& scale = matrix.scales[scale_of(i)];
    scale = std::max(scale, std::fabs(values[i]) / kLargestF8);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i] * Inverse(matrix.scales[scale_of(i)]);
    const auto above = std::lower_bound(magnitudes.begin(),
                                        magnitudes.end() - 1, std::fabs(value));
    auto code = static_cast<int>(above - magnitudes.begin());
    if (code > 0 && std::fabs(value) - magnitudes[code - 1] <
                        magnitudes[code] - std::fabs(value)) {
      --code;
    }
    matrix.bytes += static_cast<char>(code | (value < 0 ? 0x80 : 0));
  }
  return matrix;
}

std::vector<float> WidenF8(const F8Matrix& matrix, std::int64_t cols) {
  static const std::vector<float> magnitudes = MagnitudesOfF8();
  const std::int64_t across = (cols + kF8Block - 1) / kF8Block;
  std::vector<float> out;
  for (std::size_t i = 0; i < matrix.bytes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const auto byte = static_cast<unsigned char>(matrix.bytes[i]);
    const float value =
        magnitudes[byte & 0x7f] *
        matrix.scales[at / cols / kF8Block * across + at % cols / kF8Block];
    out.push_back(byte < 0x80 ? value : -value);
  }
  return out;
}

}  // namespace holdfast::model::testing
