// Weights widened to float in registers. For .cu files.
#ifndef HOLDFAST_KERNELS_CUDA_DECODE_H_
#define HOLDFAST_KERNELS_CUDA_DECODE_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/weights.h"

namespace holdfast::kernels::cuda {

template <typename T>
__device__ __forceinline__ T LoadAs(const std::uint8_t* address) {
  return *reinterpret_cast<const T*>(address);
}

// The 6-bit scale and minimum of group `group` of Q4_K and Q5_K.
__device__ __forceinline__ void SixBitScales(const std::uint8_t* bytes,
                                             int group, float* scale,
                                             float* minimum) {
  std::uint32_t s;
  std::uint32_t m;
  if (group < 4) {
    s = bytes[group] & 63u;
    m = bytes[group + 4] & 63u;
  } else {
    const std::uint32_t both = bytes[group + 4];
    s = (both & 15u) | (bytes[group - 4] >> 6 & 3u) << 4;
    m = both >> 4 | (bytes[group] >> 6 & 3u) << 4;
  }
  *scale = static_cast<float>(s);
  *minimum = static_cast<float>(m);
}

struct ScaleMinimum {
  float scale;
  float minimum;
};

// Of the group that holds number k; of types without a minimum it is 0.
template <WeightType kType>
__device__ __forceinline__ ScaleMinimum ScaleOf(const WeightView& w,
                                                std::int64_t row, int k) {
  constexpr HeadFormat kHead = HeadOf(kType);
  const std::uint8_t* head =
      w.head + row * w.head_stride + k / kHead.numbers * kHead.bytes;
  if constexpr (kType == WeightType::kF8E4M3) {
    return {LoadAs<float>(head), 0.0f};
  } else if constexpr (kType == WeightType::kQ6_K) {
    const auto group = static_cast<std::int8_t>(head[4 + k % 256 / 16]);
    return {
        HalfToFloat(LoadAs<std::uint16_t>(head)) * static_cast<float>(group),
        0.0f};
  } else if constexpr (kType == WeightType::kQ4_K ||
                       kType == WeightType::kQ5_K) {
    float scale;
    float minimum;
    SixBitScales(head + 4, k % 256 / 32, &scale, &minimum);
    return {HalfToFloat(LoadAs<std::uint16_t>(head)) * scale,
            -HalfToFloat(LoadAs<std::uint16_t>(head + 2)) * minimum};
  } else if constexpr (HasMinimum(kType)) {
    return {HalfToFloat(LoadAs<std::uint16_t>(head)),
            HalfToFloat(LoadAs<std::uint16_t>(head + 2))};
  } else {
    return {HalfToFloat(LoadAs<std::uint16_t>(head)), 0.0f};
  }
}

// What is taken from the integers of a type without a minimum.
constexpr float OffsetOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return 8.0f;
    case WeightType::kQ5_0:
      return 16.0f;
    case WeightType::kQ6_K:
      return 32.0f;
    default:
      return 0.0f;
  }
}

// The further bits of the 8 numbers from k on, 8 x high_bits of them.
template <WeightType kType>
__device__ __forceinline__ std::uint32_t HighBits(const WeightView& w,
                                                  std::int64_t row, int k) {
  constexpr int kBits = FormatOf(kType).high_bits;
  const std::uint8_t* high = w.high + row * w.high_stride + k / 8 * kBits;
  if constexpr (kBits == 2) {
    return LoadAs<std::uint16_t>(high);
  } else {
    return *high;
  }
}

// Numbers k to k + 7 of a row; k is a multiple of 8 below the padded columns.
template <WeightType kType>
__device__ __forceinline__ void Decode8(const WeightView& w, std::int64_t row,
                                        int k, float (&out)[kDecodeNumbers]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const std::uint8_t* low = w.low + row * w.low_stride;
  if constexpr (kType == WeightType::kF32) {
    const auto a = LoadAs<float4>(low + std::int64_t{k} * 4);
    const auto b = LoadAs<float4>(low + std::int64_t{k} * 4 + 16);
    const float numbers[] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < kDecodeNumbers; ++i) out[i] = numbers[i];
  } else if constexpr (kFormat.block == 0) {
    const auto four = LoadAs<uint4>(low + std::int64_t{k} * 2);
    const std::uint32_t pairs[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kType == WeightType::kBF16) {
        out[2 * i] = LowBf16(pairs[i]);
        out[2 * i + 1] = HighBf16(pairs[i]);
      } else {
        out[2 * i] = HalfToFloat(pairs[i] & 0xffffu);
        out[2 * i + 1] = HalfToFloat(pairs[i] >> 16);
      }
    }
  } else if constexpr (!kFormat.nibbles) {
    const float scale = ScaleOf<kType>(w, row, k).scale;
    const auto two = LoadAs<uint2>(low + k);
    const std::uint32_t words[] = {two.x, two.y};
#pragma unroll
    for (int i = 0; i < kDecodeNumbers; ++i) {
      const std::uint32_t byte = words[i / 4] >> 8 * (i % 4) & 255u;
      if constexpr (kType == WeightType::kF8E4M3) {
        out[i] = F8ToFloat(byte) * scale;
      } else {
        out[i] = static_cast<float>(static_cast<std::int8_t>(byte)) * scale;
      }
    }
  } else {
    const ScaleMinimum of = ScaleOf<kType>(w, row, k);
    const auto nibbles = LoadAs<std::uint32_t>(low + k / 2);
    std::uint32_t high = 0;
    if constexpr (kFormat.high_bits > 0) high = HighBits<kType>(w, row, k);
#pragma unroll
    for (int i = 0; i < kDecodeNumbers; ++i) {
      std::uint32_t q = nibbles >> 4 * i & 15u;
      if constexpr (kFormat.high_bits > 0) {
        constexpr std::uint32_t kMask = (1u << kFormat.high_bits) - 1;
        q |= (high >> kFormat.high_bits * i & kMask) << 4;
      }
      const float number = static_cast<float>(q);
      if constexpr (HasMinimum(kType)) {
        out[i] = fmaf(number, of.scale, of.minimum);
      } else {
        constexpr float kOffset = OffsetOf(kType);
        out[i] = (number - kOffset) * of.scale;
      }
    }
  }
}

// Calls body.template operator()<type>().
template <typename Body>
cudaError_t ForType(WeightType type, const Body& body) {
  switch (type) {
#define HF_TYPE(name)    \
  case WeightType::name: \
    return body.template operator()<WeightType::name>();
    HF_EVERY_WEIGHT_TYPE(HF_TYPE)
#undef HF_TYPE
  }
  return cudaErrorInvalidValue;
}

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_DECODE_H_
