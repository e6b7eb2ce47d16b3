#include "kernels/cuda/device.h"
#include "kernels/cuda/rows.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;

__device__ __forceinline__ std::int64_t GlobalThread() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void RmsNormKernel(const float* x, const float* weight, float eps,
                              int cols, float* out) {
  const std::int64_t at = std::int64_t{blockIdx.x} * cols;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    squares = fmaf(x[at + i], x[at + i], squares);
  }
  squares = BlockSum(squares, SharedMemory<float>());
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    out[at + i] = x[at + i] * scale * weight[i];
  }
}

// A warp a head.
__global__ void HeadNormKernel(float* x, const float* weight, float eps,
                               int rows, int row_stride, int heads,
                               int head_dim) {
  const std::int64_t head = std::int64_t{blockIdx.x} * kWarps + WarpInBlock();
  if (head >= std::int64_t{rows} * heads) return;  // the whole warp
  float* numbers = x + head / heads * row_stride + head % heads * head_dim;
  float squares = 0.0f;
  for (int i = Lane(); i < head_dim; i += kWarpLanes) {
    squares = fmaf(numbers[i], numbers[i], squares);
  }
  squares = WarpSum(squares);
  const float scale =
      1.0f / sqrtf(squares / static_cast<float>(head_dim) + eps);
  for (int i = Lane(); i < head_dim; i += kWarpLanes) {
    numbers[i] = numbers[i] * scale * weight[i];
  }
}

__global__ void AddKernel(float* x, const float* y, std::int64_t count) {
  const std::int64_t i = GlobalThread();
  if (i < count) x[i] += y[i];
}

// A thread a pair of one head.
__global__ void RopeKernel(float* x, int row_stride, int heads, int head_dim,
                           const float* cos, const float* sin, int half,
                           const RowPlace* places, int rows) {
  const std::int64_t i = GlobalThread();
  const int pairs = heads * half;
  if (i >= std::int64_t{rows} * pairs) return;
  const RowPlace place = places[i / pairs];
  const int pair = static_cast<int>(i % pairs);
  const int dim = pair % half;
  float* low =
      x + std::int64_t{place.row} * row_stride + pair / half * head_dim + dim;
  const std::int64_t at = std::int64_t{place.position} * half + dim;
  const float c = cos[at];
  const float s = sin[at];
  const float a = low[0];
  const float b = low[half];
  low[0] = fmaf(a, c, -(b * s));
  low[half] = fmaf(b, c, a * s);
}

__global__ void SiluMulKernel(const float* gate_up, int rows, int cols,
                              float* out) {
  const std::int64_t i = GlobalThread();
  if (i >= std::int64_t{rows} * cols) return;
  const float* gate = gate_up + i / cols * 2 * cols + i % cols;
  out[i] = Silu(gate[0]) * gate[cols];
}

__global__ void SigmoidMulKernel(float* x, const float* gate, int gate_stride,
                                 int rows, int cols) {
  const std::int64_t i = GlobalThread();
  if (i >= std::int64_t{rows} * cols) return;
  x[i] *= Sigmoid(gate[i / cols * gate_stride + i % cols]);
}

__global__ void AddGatedKernel(float* x, const float* y, const float* gate,
                               int gate_stride, int rows, int cols) {
  const std::int64_t i = GlobalThread();
  if (i >= std::int64_t{rows} * cols) return;
  x[i] = fmaf(Sigmoid(gate[i / cols * gate_stride]), y[i], x[i]);
}

__global__ void AddBiasKernel(float* y, std::int64_t y_stride,
                              const float* bias, int rows, int cols) {
  const std::int64_t i = GlobalThread();
  if (i < std::int64_t{rows} * cols) {
    y[i / cols * y_stride + i % cols] += bias[i % cols];
  }
}

}  // namespace

cudaError_t FindKernels() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, AddKernel);
}

cudaError_t RmsNorm(cudaStream_t stream, const float* x, const float* weight,
                    float eps, int rows, int cols, float* out) {
  return Launch(RmsNormKernel, dim3(rows), kThreads, kWarps * sizeof(float),
                stream, x, weight, eps, cols, out);
}

cudaError_t HeadNorm(cudaStream_t stream, float* x, const float* weight,
                     float eps, int rows, int row_stride, int heads,
                     int head_dim) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * heads, kWarps));
  return Launch(HeadNormKernel, grid, kThreads, 0, stream, x, weight, eps, rows,
                row_stride, heads, head_dim);
}

cudaError_t Add(cudaStream_t stream, float* x, const float* y,
                std::int64_t count) {
  return Launch(AddKernel, dim3(BlocksFor(count, kThreads)), kThreads, 0,
                stream, x, y, count);
}

cudaError_t Rope(cudaStream_t stream, float* x, int row_stride, int heads,
                 int head_dim, const float* cos, const float* sin,
                 int rotary_dims, const LaunchTable& table) {
  const int half = rotary_dims / 2;
  const std::int64_t work = std::int64_t{table.row_count} * heads * half;
  return Launch(RopeKernel, dim3(BlocksFor(work, kThreads)), kThreads, 0,
                stream, x, row_stride, heads, head_dim, cos, sin, half,
                table.rows, table.row_count);
}

cudaError_t SiluMul(cudaStream_t stream, const float* gate_up, int rows,
                    int cols, float* out) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * cols, kThreads));
  return Launch(SiluMulKernel, grid, kThreads, 0, stream, gate_up, rows, cols,
                out);
}

cudaError_t SigmoidMul(cudaStream_t stream, float* x, const float* gate,
                       int gate_stride, int rows, int cols) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * cols, kThreads));
  return Launch(SigmoidMulKernel, grid, kThreads, 0, stream, x, gate,
                gate_stride, rows, cols);
}

cudaError_t AddGated(cudaStream_t stream, float* x, const float* y,
                     const float* gate, int gate_stride, int rows, int cols) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * cols, kThreads));
  return Launch(AddGatedKernel, grid, kThreads, 0, stream, x, y, gate,
                gate_stride, rows, cols);
}

cudaError_t AddBias(cudaStream_t stream, float* y, std::int64_t y_stride,
                    const float* bias, int rows, int cols) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * cols, kThreads));
  return Launch(AddBiasKernel, grid, kThreads, 0, stream, y, y_stride, bias,
                rows, cols);
}

}  // namespace holdfast::kernels::cuda
