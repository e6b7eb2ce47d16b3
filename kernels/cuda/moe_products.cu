#include "kernels/cuda/decode.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/moe.h"

namespace holdfast::kernels::cuda {
namespace {

// ---- few pairs ----

constexpr int kFewThreads = 256;
constexpr int kFewWarps = kFewThreads / kWarpLanes;

// Grid: [output columns][pairs]. A warp computes one number, in the order of
// the few-row product.
template <WeightType kType>
__global__ void FewPairKernel(PairProduct product,
                              const std::int32_t* experts) {
  const int column = static_cast<int>(blockIdx.x) * kFewWarps + WarpInBlock();
  if (column >= product.outputs) return;  // the whole warp
  const std::int64_t pair = blockIdx.y;
  const WeightView w = product.views[experts[pair]];
  const float* x = product.x + pair / product.x_share * product.cols;
  float sum = 0.0f;
  for (int k = Lane() * kDecodeNumbers; k < product.cols;
       k += kWarpLanes * kDecodeNumbers) {
    float weights[kDecodeNumbers];
    Decode8<kType>(w, column, k, weights);
#pragma unroll
    for (int i = 0; i < kDecodeNumbers; ++i) {
      sum = fmaf(k + i < product.cols ? x[k + i] : 0.0f, weights[i], sum);
    }
  }
  sum = WarpSum(sum);
  if (Lane() == 0) product.y[pair * product.y_stride + column] = sum;
}

// ---- many ----

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kTileColumns = 64;
constexpr int kTileK = 32;
// Between rows in shared memory, in numbers: a multiple of 8 for aligned
// stores, and such that a warp's reads fall into different banks.
constexpr int kRowNumbers = kTileK + 8;
static_assert(kPairTile == 16 * kWarps);

struct Tile {
  std::uint16_t x[kPairTile][kRowNumbers];
  std::uint16_t w[kTileColumns][kRowNumbers];
};

__device__ __forceinline__ void StoreEight(
    const float (&numbers)[kDecodeNumbers], std::uint16_t* to) {
  uint4 packed;
  packed.x = PackBf16(numbers[0], numbers[1]);
  packed.y = PackBf16(numbers[2], numbers[3]);
  packed.z = PackBf16(numbers[4], numbers[5]);
  packed.w = PackBf16(numbers[6], numbers[7]);
  *reinterpret_cast<uint4*>(to) = packed;
}

__device__ __forceinline__ std::uint32_t LoadPair(const std::uint16_t* from) {
  return *reinterpret_cast<const std::uint32_t*>(from);
}

// Fills the tile with numbers k to k + kTileK - 1; zeros where there are none.
template <WeightType kType>
__device__ __forceinline__ void FillTile(const PairProduct& product,
                                         const WeightView& w,
                                         const std::int32_t* order, int pairs,
                                         int column, int k, Tile* tile) {
  constexpr int kEighths = kTileK / kDecodeNumbers;
  for (int i = threadIdx.x; i < kPairTile * kEighths; i += kThreads) {
    const int row = i / kEighths;
    const int at = k + i % kEighths * kDecodeNumbers;
    float numbers[kDecodeNumbers] = {};
    if (row < pairs) {
      const float* x =
          product.x + std::int64_t{order[row] / product.x_share} * product.cols;
#pragma unroll
      for (int j = 0; j < kDecodeNumbers; ++j) {
        if (at + j < product.cols) numbers[j] = x[at + j];
      }
    }
    StoreEight(numbers, &tile->x[row][i % kEighths * kDecodeNumbers]);
  }
  for (int i = threadIdx.x; i < kTileColumns * kEighths; i += kThreads) {
    const int row = i / kEighths;
    const int at = k + i % kEighths * kDecodeNumbers;
    float numbers[kDecodeNumbers] = {};
    if (column + row < product.outputs && at < product.cols) {
      Decode8<kType>(w, column + row, at, numbers);
    }
    StoreEight(numbers, &tile->w[row][i % kEighths * kDecodeNumbers]);
  }
}

// Grid: [tiles of pairs][tiles of 64 output columns]. A warp multiplies 16
// pairs.
template <WeightType kType>
__global__ void __launch_bounds__(kThreads)
    GroupedKernel(PairProduct product, Routing routing) {
  const int expert = routing.tile_expert[blockIdx.x];
  if (expert < 0) return;
  const int first = routing.tile_first[blockIdx.x];
  const int left = routing.first[expert + 1] - first;
  const int pairs = left < kPairTile ? left : kPairTile;
  const std::int32_t* order = routing.order + first;
  const int column = static_cast<int>(blockIdx.y) * kTileColumns;
  const WeightView w = product.views[expert];
  Tile* const tile = SharedMemory<Tile>();
  const int group = Lane() / 4;
  const int two = Lane() % 4 * 2;
  const int row = WarpInBlock() * 16 + group;

  float sums[kTileColumns / 8][4] = {};
  for (int k = 0; k < product.cols; k += kTileK) {
    FillTile<kType>(product, w, order, pairs, column, k, tile);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kTileK; step += 16) {
      const std::uint32_t a[4] = {LoadPair(&tile->x[row][step + two]),
                                  LoadPair(&tile->x[row + 8][step + two]),
                                  LoadPair(&tile->x[row][step + two + 8]),
                                  LoadPair(&tile->x[row + 8][step + two + 8])};
#pragma unroll
      for (int n = 0; n < kTileColumns / 8; ++n) {
        const std::uint16_t* from = &tile->w[n * 8 + group][step + two];
        const std::uint32_t b[2] = {LoadPair(from), LoadPair(from + 8)};
        MmaBf16(sums[n], a, b);
      }
    }
    __syncthreads();  // before the tile is filled again
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + half * 8 >= pairs) continue;
    float* y = product.y + order[row + half * 8] * product.y_stride;
#pragma unroll
    for (int n = 0; n < kTileColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = column + n * 8 + two + i;
        if (at < product.outputs) y[at] = sums[n][half * 2 + i];
      }
    }
  }
}

}  // namespace

cudaError_t FewPairProduct(cudaStream_t stream, const PairProduct& product,
                           const Routing& routing, int pairs) {
  const dim3 grid(BlocksFor(product.outputs, kFewWarps),
                  static_cast<unsigned>(pairs));
  return ForType(product.type, [&]<WeightType kType>() {
    return Launch(FewPairKernel<kType>, grid, kFewThreads, 0, stream, product,
                  routing.experts);
  });
}

cudaError_t GroupedProduct(cudaStream_t stream, const PairProduct& product,
                           const Routing& routing, int tiles) {
  const dim3 grid(static_cast<unsigned>(tiles),
                  BlocksFor(product.outputs, kTileColumns));
  return ForType(product.type, [&]<WeightType kType>() {
    return Launch(GroupedKernel<kType>, grid, kThreads, sizeof(Tile), stream,
                  product, routing);
  });
}

}  // namespace holdfast::kernels::cuda
