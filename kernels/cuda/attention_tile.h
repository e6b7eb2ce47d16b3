// A warp's part of attention on the matrix unit: 16 rows of queries over runs
// of 16 keys. For .cu files.
//
// The instruction fixes which lane holds which row and column, but a sum over
// dims or keys may take them in any order, as long as both factors agree. So a
// lane takes dims 8 t to 8 t + 7 of each 32 and keys 4 t to 4 t + 3 of each 16
// (t = lane % 4): 16 bytes of a key, 8 bytes of a dim of V, as the pool has
// them.
#ifndef HOLDFAST_KERNELS_CUDA_ATTENTION_TILE_H_
#define HOLDFAST_KERNELS_CUDA_ATTENTION_TILE_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_pool.h"

namespace holdfast::kernels::cuda {

inline constexpr int kTileRows = 16;
// Below every score, so that a row without keys yet has a finite maximum.
inline constexpr float kNoMax = -1e30f;
inline constexpr float kLog2E = 1.4426950408889634f;

template <int kDim>
inline constexpr int kSteps = kDim / 16;  // of the matrix unit over the dims

// Granules whose scores a warp holds at a time.
template <int kDim>
inline constexpr int kStepGranules = kDim == 64    ? 4
                                     : kDim == 128 ? 2
                                                   : 1;

// Queries as the unit takes them, 16 rows: [step][lane], in shared memory where
// they would not leave enough registers.
template <int kDim>
struct QueryTile {
  static constexpr bool kShared = kDim > 128;
  static constexpr int kBytes =
      kShared ? kSteps<kDim> * kWarpLanes * static_cast<int>(sizeof(uint4)) : 0;

  std::uint32_t held[kShared ? 1 : kSteps<kDim>][4];
  uint4* shared = nullptr;

  // Rows g and g + 8 of the tile; null: a row past the end, zeros.
  __device__ __forceinline__ void Load(const float* upper, const float* lower,
                                       uint4* room) {
    shared = room;
#pragma unroll
    for (int step = 0; step < kSteps<kDim>; ++step) {
      const int dim = step / 2 * kKChunkDims + Lane() % 4 * 8 + step % 2 * 4;
      std::uint32_t words[4] = {};
      if (upper != nullptr) {
        words[0] = PackBf16(upper[dim], upper[dim + 1]);
        words[2] = PackBf16(upper[dim + 2], upper[dim + 3]);
      }
      if (lower != nullptr) {
        words[1] = PackBf16(lower[dim], lower[dim + 1]);
        words[3] = PackBf16(lower[dim + 2], lower[dim + 3]);
      }
      if constexpr (kShared) {
        room[step * kWarpLanes + Lane()] =
            uint4{words[0], words[1], words[2], words[3]};
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) held[step][i] = words[i];
      }
    }
  }

  __device__ __forceinline__ void Get(int step, std::uint32_t (&a)[4]) const {
    if constexpr (kShared) {
      const uint4 words = shared[step * kWarpLanes + Lane()];
      a[0] = words.x;
      a[1] = words.y;
      a[2] = words.z;
      a[3] = words.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held[step][i];
    }
  }
};

// Keys that a lane's two rows, g and g + 8, may see: below these.
struct KeyLimits {
  int upper = 0;
  int lower = 0;
};

// Softmax so far of rows g (index 0) and g + 8 (1). Scores are in units of
// log 2; sums are of this lane's keys until Finish.
template <int kDim>
struct AttentionTile {
  float out[kDim / 8][4];  // dims 8 n + 2t, + 1: of row g, then of row g + 8
  float max[2];
  float sum[2];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0.0f;
    }
    max[0] = max[1] = kNoMax;
    sum[0] = sum[1] = 0.0f;
  }

  // Adds kStepGranules granules from key first_key on; keys from `end` on are
  // not written. k and v: the head's numbers in the first granule; the next lie
  // k_stride bytes on.
  __device__ __forceinline__ void Step(const QueryTile<kDim>& query,
                                       const std::byte* k, const std::byte* v,
                                       std::size_t stride, int first_key,
                                       int end, const KeyLimits& limits,
                                       float scale) {
    constexpr int kGranules = kStepGranules<kDim>;
    float scores[kGranules][2][4];
#pragma unroll
    for (int i = 0; i < kGranules; ++i) {
      Scores(query, k + i * stride, scores[i]);
    }
    Weigh(scores, first_key, limits, scale);
#pragma unroll
    for (int i = 0; i < kGranules; ++i) {
      AddValues(v + i * stride, scores[i],
                end - first_key - i * kGranuleTokens);
    }
  }

  // Column n of half j is key 4 (n / 2) + n % 2 + 2 j: a lane's columns 2t and
  // 2t + 1 of both halves are keys 4t to 4t + 3.
  __device__ __forceinline__ void Scores(const QueryTile<kDim>& query,
                                         const std::byte* k,
                                         float (&scores)[2][4]) {
    const int group = Lane() / 4;
    const int key = group / 2 * 4 + group % 2;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] = 0.0f;
    }
#pragma unroll
    for (int chunk = 0; chunk < kDim / kKChunkDims; ++chunk) {
      std::uint32_t a[2][4];
      query.Get(2 * chunk, a[0]);
      query.Get(2 * chunk + 1, a[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at =
            KIndex(key + 2 * j, chunk * kKChunkDims + Lane() % 4 * 8);
        const uint4 words = *reinterpret_cast<const uint4*>(k + at * 2);
        const std::uint32_t first[2] = {words.x, words.y};
        const std::uint32_t second[2] = {words.z, words.w};
        MmaBf16(scores[j], a[0], first);
        MmaBf16(scores[j], a[1], second);
      }
    }
  }

  // Scores become weights against the new maximum; what was summed so far is
  // brought to it.
  template <int kGranules>
  __device__ __forceinline__ void Weigh(float (&scores)[kGranules][2][4],
                                        int first_key, const KeyLimits& limits,
                                        float scale) {
    float most[2] = {max[0], max[1]};
#pragma unroll
    for (int i = 0; i < kGranules; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int key =
              first_key + i * kGranuleTokens + Lane() % 4 * 4 + 2 * j + c % 2;
          const int limit = c < 2 ? limits.upper : limits.lower;
          float& score = scores[i][j][c];
          score = key < limit ? score * scale : -INFINITY;
          most[c / 2] = fmaxf(most[c / 2], score);
        }
      }
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fmaxf(most[r], __shfl_xor_sync(kAllLanes, most[r], 1));
      most[r] = fmaxf(most[r], __shfl_xor_sync(kAllLanes, most[r], 2));
      factor[r] = exp2f(max[r] - most[r]);
      max[r] = most[r];
      sum[r] *= factor[r];
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      out[n][0] *= factor[0];
      out[n][1] *= factor[0];
      out[n][2] *= factor[1];
      out[n][3] *= factor[1];
    }
#pragma unroll
    for (int i = 0; i < kGranules; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float& score = scores[i][j][c];
          score = exp2f(score - max[c / 2]);
          sum[c / 2] += score;
        }
      }
    }
  }

  // `written`: how many of the granule's rows are; the others may hold
  // anything, and 0 x NaN is not 0.
  __device__ __forceinline__ void AddValues(const std::byte* v,
                                            const float (&weights)[2][4],
                                            int written) {
    const int t = Lane() % 4;
    const std::uint32_t a[4] = {PackBf16(weights[0][0], weights[0][1]),
                                PackBf16(weights[0][2], weights[0][3]),
                                PackBf16(weights[1][0], weights[1][1]),
                                PackBf16(weights[1][2], weights[1][3])};
    const std::uint32_t low_mask = WrittenMask(written - 4 * t);
    const std::uint32_t high_mask = WrittenMask(written - 4 * t - 2);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int at = VIndex(4 * t, n * 8 + Lane() / 4);
      const uint2 words = *reinterpret_cast<const uint2*>(v + at * 2);
      const std::uint32_t b[2] = {words.x & low_mask, words.y & high_mask};
      MmaBf16(out[n], a, b);
    }
  }

  // Of a pair of numbers.
  static __device__ __forceinline__ std::uint32_t WrittenMask(int written) {
    return written >= 2 ? 0xffffffffu : written == 1 ? 0xffffu : 0u;
  }

  // Adds the four lanes' sums of a row.
  __device__ __forceinline__ void Finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
    }
  }
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_ATTENTION_TILE_H_
