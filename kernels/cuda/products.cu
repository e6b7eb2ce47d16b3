#include "kernels/cuda/decode.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/products.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
// Output columns that a warp computes at a time: its loads of x serve both.
constexpr int kWarpColumns = 2;

// Numbers k to k + 7 of a row; past its end zeros.
__device__ __forceinline__ void Load8(const float* row, int k,
                                      std::int64_t cols, bool aligned,
                                      float (&out)[kDecodeNumbers]) {
  if (aligned) {
    const float4 a = *reinterpret_cast<const float4*>(row + k);
    const float4 b = *reinterpret_cast<const float4*>(row + k + 4);
    const float numbers[] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < kDecodeNumbers; ++i) out[i] = numbers[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < kDecodeNumbers; ++i) {
    out[i] = k + i < cols ? row[k + i] : 0.0f;
  }
}

// A warp computes two output columns of all rows; a lane the numbers 8 lane to
// 8 lane + 7 of each run of 256, then the lanes' sums are added in a tree.
template <WeightType kType>
__global__ void FewRowKernel(WeightView w, const float* x, int rows,
                             const float* bias, float* y,
                             std::int64_t y_stride) {
  const std::int64_t column =
      (std::int64_t{blockIdx.x} * kWarps + WarpInBlock()) * kWarpColumns;
  if (column >= w.rows) return;  // the whole warp
  const std::int64_t last = w.rows - 1;
  const bool aligned = w.cols % kDecodeNumbers == 0;
  float sums[kFewRows][kWarpColumns] = {};
  const int cols = static_cast<int>(w.cols);
  for (int k = Lane() * kDecodeNumbers; k < cols;
       k += kWarpLanes * kDecodeNumbers) {
    float weights[kWarpColumns][kDecodeNumbers];
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      const std::int64_t n = column + c;
      Decode8<kType>(w, n < last ? n : last, k, weights[c]);
    }
#pragma unroll
    for (int r = 0; r < kFewRows; ++r) {
      if (r >= rows) break;
      float numbers[kDecodeNumbers];
      Load8(x + r * w.cols, k, w.cols, aligned, numbers);
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kDecodeNumbers; ++i) {
          sums[r][c] = fmaf(numbers[i], weights[c][i], sums[r][c]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kFewRows; ++r) {
    if (r >= rows) break;
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      const float sum = WarpSum(sums[r][c]);
      if (Lane() != 0 || column + c > last) continue;
      const float added = bias == nullptr ? 0.0f : bias[column + c];
      y[r * y_stride + column + c] = sum + added;
    }
  }
}

__device__ __forceinline__ uint4
PackEight(const float (&numbers)[kDecodeNumbers]) {
  uint4 packed;
  packed.x = PackBf16(numbers[0], numbers[1]);
  packed.y = PackBf16(numbers[2], numbers[3]);
  packed.z = PackBf16(numbers[4], numbers[5]);
  packed.w = PackBf16(numbers[6], numbers[7]);
  return packed;
}

// A thread eight numbers.
template <WeightType kType>
__global__ void WidenKernel(WeightView w, std::int64_t first_row,
                            std::int64_t rows, std::uint16_t* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t eighths = PaddedCols(w.cols) / kDecodeNumbers;
  if (i >= rows * eighths) return;
  float numbers[kDecodeNumbers];
  Decode8<kType>(w, first_row + i / eighths,
                 static_cast<int>(i % eighths) * kDecodeNumbers, numbers);
  reinterpret_cast<uint4*>(out)[i] = PackEight(numbers);
}

__global__ void NarrowRowsKernel(const float* x, int rows, std::int64_t cols,
                                 std::uint16_t* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t eighths = PaddedCols(cols) / kDecodeNumbers;
  if (i >= rows * eighths) return;
  float numbers[kDecodeNumbers];
  Load8(x + i / eighths * cols, static_cast<int>(i % eighths) * kDecodeNumbers,
        cols, cols % kDecodeNumbers == 0, numbers);
  reinterpret_cast<uint4*>(out)[i] = PackEight(numbers);
}

template <WeightType kType>
__global__ void EmbedKernel(WeightView w, const std::int32_t* ids, int rows,
                            float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t eighths = PaddedCols(w.cols) / kDecodeNumbers;
  if (i >= rows * eighths) return;
  const std::int64_t row = i / eighths;
  const int k = static_cast<int>(i % eighths) * kDecodeNumbers;
  float numbers[kDecodeNumbers];
  Decode8<kType>(w, ids[row], k, numbers);
#pragma unroll
  for (int j = 0; j < kDecodeNumbers; ++j) {
    if (k + j < w.cols) out[row * w.cols + k + j] = numbers[j];
  }
}

}  // namespace

cudaError_t FewRowProduct(cudaStream_t stream, const WeightView& w,
                          const float* x, int rows, const float* bias, float* y,
                          std::int64_t y_stride) {
  const dim3 grid(BlocksFor(w.rows, kWarps * kWarpColumns));
  return ForType(w.type, [&]<WeightType kType>() {
    return Launch(FewRowKernel<kType>, grid, kThreads, 0, stream, w, x, rows,
                  bias, y, y_stride);
  });
}

cudaError_t WidenToBf16(cudaStream_t stream, const WeightView& w,
                        std::int64_t first_row, std::int64_t rows,
                        std::uint16_t* out) {
  const std::int64_t work = rows * PaddedCols(w.cols) / kDecodeNumbers;
  return ForType(w.type, [&]<WeightType kType>() {
    return Launch(WidenKernel<kType>, dim3(BlocksFor(work, kThreads)), kThreads,
                  0, stream, w, first_row, rows, out);
  });
}

cudaError_t NarrowRows(cudaStream_t stream, const float* x, int rows,
                       std::int64_t cols, std::uint16_t* out) {
  const std::int64_t work = rows * PaddedCols(cols) / kDecodeNumbers;
  return Launch(NarrowRowsKernel, dim3(BlocksFor(work, kThreads)), kThreads, 0,
                stream, x, rows, cols, out);
}

cudaError_t EmbedRows(cudaStream_t stream, const WeightView& w,
                      const std::int32_t* ids, int rows, float* out) {
  const std::int64_t work = rows * PaddedCols(w.cols) / kDecodeNumbers;
  return ForType(w.type, [&]<WeightType kType>() {
    return Launch(EmbedKernel<kType>, dim3(BlocksFor(work, kThreads)), kThreads,
                  0, stream, w, ids, rows, out);
  });
}

}  // namespace holdfast::kernels::cuda
