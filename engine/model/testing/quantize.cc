#include "engine/model/testing/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

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

void AppendQ40(std::span<const float> x, std::string* out) {
  const float peak = *std::max_element(
      x.begin(), x.end(),
      [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const std::uint16_t scale = FloatToF16(peak / -8);
  const float inverse = Inverse(kernels::F16ToFloat(scale));
  AppendU16(scale, out);
  int quanta[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    quanta[i] = Quantum(x[i], inverse, -8, 7) + 8;
  }
  AppendNibbles(quanta, out);
}

void AppendQ41(std::span<const float> x, std::string* out) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const std::uint16_t scale = FloatToF16((*high - *low) / 15);
  const std::uint16_t minimum = FloatToF16(*low);
  const float inverse = Inverse(kernels::F16ToFloat(scale));
  const float base = kernels::F16ToFloat(minimum);
  AppendU16(scale, out);
  AppendU16(minimum, out);
  int quanta[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    quanta[i] = Quantum(x[i] - base, inverse, 0, 15);
  }
  AppendNibbles(quanta, out);
}

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

void WidenBlock(WeightType type, const char* block, std::vector<float>* out) {
  const float scale = HalfAt(block);
  for (std::size_t k = 0; k < kBlock; ++k) {
    if (type == WeightType::kQ8_0) {
      out->push_back(scale * static_cast<signed char>(block[2 + k]));
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
  for (std::size_t at = 0; at + kBlock <= values.size(); at += kBlock) {
    const auto block = values.subspan(at, kBlock);
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
  const bool blocks = type != WeightType::kF16 && type != WeightType::kBF16;
  const std::size_t step = kernels::WeightRowBytes(type, blocks ? kBlock : 1);
  for (std::size_t at = 0; at + step <= bytes.size(); at += step) {
    const char* from = bytes.data() + at;
    if (blocks) {
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

}  // namespace holdfast::model::testing
