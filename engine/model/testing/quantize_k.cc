#include "engine/model/testing/quantize_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/testing/quantize.h"
#include "kernels/float16.h"

namespace holdfast::model::testing {
namespace {

using kernels::WeightType;

// Q4_K, Q5_K: 8 groups of 32, each with a 6-bit scale and a 6-bit minimum, in
// units of two halves. Q6_K: 16 groups of 16 with a signed byte as scale.
constexpr int kGroups = 8, kGroup = 32;
constexpr int kSmallGroups = 16, kSmallGroup = 16;
constexpr int kSixBits = 63;

int Quantum(float value, float unit, int low, int high) {
  if (unit == 0) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(value / unit)), low, high);
}

float PutHalf(float value, std::string* out) {
  const std::uint16_t bits = FloatToF16(value);
  out->append(reinterpret_cast<const char*>(&bits), sizeof bits);
  return kernels::F16ToFloat(bits);
}

float HalfAt(const char* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return kernels::F16ToFloat(bits);
}

int ByteAt(const char* from, int index) {
  return static_cast<unsigned char>(from[index]);
}

void AppendWithMinima(std::span<const float> x, int bits, std::string* out) {
  const int most = (1 << bits) - 1;
  float scales[kGroups], minima[kGroups];
  float largest_scale = 0, largest_minimum = 0;
  for (int g = 0; g < kGroups; ++g) {
    const auto group = x.subspan(g * kGroup, kGroup);
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    minima[g] = std::max(0.0f, -*low);
    scales[g] = (std::max(0.0f, *high) + minima[g]) / static_cast<float>(most);
    largest_scale = std::max(largest_scale, scales[g]);
    largest_minimum = std::max(largest_minimum, minima[g]);
  }
  const float d = PutHalf(largest_scale / kSixBits, out);
  const float m = PutHalf(largest_minimum / kSixBits, out);
  int q[kBlockOfK];
  char packed[12] = {};
  for (int g = 0; g < kGroups; ++g) {
    const int s = Quantum(scales[g], d, 0, kSixBits);
    const int t = Quantum(minima[g], m, 0, kSixBits);
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      q[i] = Quantum(x[i] + m * static_cast<float>(t),
                     d * static_cast<float>(s), 0, most);
    }
    if (g < 4) {
      packed[g] |= static_cast<char>(s);
      packed[g + 4] |= static_cast<char>(t);
    } else {
      packed[g + 4] = static_cast<char>(s % 16 + t % 16 * 16);
      packed[g - 4] |= static_cast<char>(s / 16 * 64);
      packed[g] |= static_cast<char>(t / 16 * 64);
    }
  }
  out->append(packed, sizeof packed);
  if (bits == 5) {
    for (int i = 0; i < kGroup; ++i) {
      int byte = 0;
      for (int g = 0; g < kGroups; ++g) byte |= q[g * kGroup + i] / 16 << g;
      *out += static_cast<char>(byte);
    }
  }
  for (int g = 0; g < kGroups; g += 2) {
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      *out += static_cast<char>(q[i] % 16 + q[i + kGroup] % 16 * 16);
    }
  }
}

void AppendQ6K(std::span<const float> x, std::string* out) {
  float scales[kSmallGroups];
  float largest = 0;
  for (int g = 0; g < kSmallGroups; ++g) {
    const auto group = x.subspan(g * kSmallGroup, kSmallGroup);
    const float peak = *std::max_element(
        group.begin(), group.end(),
        [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    scales[g] = peak / -32;
    largest = std::max(largest, std::fabs(scales[g]));
  }
  std::string half;
  const float d = PutHalf(largest / 127, &half);
  int q[kBlockOfK];
  std::string packed;
  for (int g = 0; g < kSmallGroups; ++g) {
    const int s = Quantum(scales[g], d, -127, 127);
    packed += static_cast<char>(s);
    for (int i = g * kSmallGroup; i < (g + 1) * kSmallGroup; ++i) {
      q[i] = Quantum(x[i], d * static_cast<float>(s), -32, 31) + 32;
    }
  }
  // Two halves of 128: 64 numbers in low nibbles, 64 in high ones.
  for (int i = 0; i < kBlockOfK; ++i) {
    if (i % 128 >= 64) continue;
    *out += static_cast<char>(q[i] % 16 + q[i + 64] % 16 * 16);
  }
  for (int i = 0; i < kBlockOfK; ++i) {
    if (i % 128 >= 32) continue;
    *out += static_cast<char>(q[i] / 16 + q[i + 32] / 16 * 4 +
                              q[i + 64] / 16 * 16 + q[i + 96] / 16 * 64);
  }
  *out += packed + half;
}

}  // namespace

void AppendBlockOfK(WeightType type, std::span<const float> x,
                    std::string* out) {
  if (type == WeightType::kQ6_K) {
    AppendQ6K(x, out);
  } else {
    AppendWithMinima(x, type == WeightType::kQ5_K ? 5 : 4, out);
  }
}

void WidenBlockOfK(WeightType type, const char* block,
                   std::vector<float>* out) {
  if (type == WeightType::kQ6_K) {
    for (int i = 0; i < kBlockOfK; ++i) {
      const int low = ByteAt(block, i / 128 * 64 + i % 64);
      const int high = ByteAt(block, 128 + i / 128 * 32 + i % 32);
      const int q = (low >> (i % 128 / 64 * 4) & 15) +
                    (high >> (i % 128 / 32 * 2) & 3) * 16 - 32;
      const int s = static_cast<signed char>(block[192 + i / kSmallGroup]);
      // Exact in float, in any order.
      out->push_back(HalfAt(block + 208) * static_cast<float>(s) *
                     static_cast<float>(q));
    }
    return;
  }
  const bool five = type == WeightType::kQ5_K;
  const char* packed = block + 4;
  const char* nibbles = block + (five ? 48 : 16);
  for (int i = 0; i < kBlockOfK; ++i) {
    const int g = i / kGroup;
    const int both = ByteAt(packed, g < 4 ? g : g + 4);
    const int s =
        g < 4 ? both & 63 : both % 16 + ByteAt(packed, g - 4) / 64 * 16;
    const int t = g < 4 ? ByteAt(packed, g + 4) & 63
                        : both / 16 + ByteAt(packed, g) / 64 * 16;
    int q = ByteAt(nibbles, g / 2 * kGroup + i % kGroup) >> (g % 2 * 4) & 15;
    if (five) q += (ByteAt(block, 16 + i % kGroup) >> g & 1) * 16;
    // Both products are exact: the subtraction alone rounds.
    out->push_back(HalfAt(block) * static_cast<float>(s * q) -
                   HalfAt(block + 2) * static_cast<float>(t));
  }
}

}  // namespace holdfast::model::testing
