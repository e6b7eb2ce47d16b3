// Operations on rows of activations (kernels/backend.h says what they compute).
// Pointers are device memory; everything is put on `stream`. The result is what
// the launch was refused for. Of every operation a row's result depends on that
// row alone.
#ifndef HOLDFAST_KERNELS_CUDA_ROWS_H_
#define HOLDFAST_KERNELS_CUDA_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/launch_table.h"

namespace holdfast::kernels::cuda {

// Whether this build has code for the current device.
cudaError_t FindKernels();

cudaError_t RmsNorm(cudaStream_t stream, const float* x, const float* weight,
                    float eps, int rows, int cols, float* out);
cudaError_t HeadNorm(cudaStream_t stream, float* x, const float* weight,
                     float eps, int rows, int row_stride, int heads,
                     int head_dim);
cudaError_t Add(cudaStream_t stream, float* x, const float* y,
                std::int64_t count);
// cos and sin: [position][rotary_dims / 2].
cudaError_t Rope(cudaStream_t stream, float* x, int row_stride, int heads,
                 int head_dim, const float* cos, const float* sin,
                 int rotary_dims, const LaunchTable& table);
cudaError_t SiluMul(cudaStream_t stream, const float* gate_up, int rows,
                    int cols, float* out);
// x[r][i] *= sigmoid(gate[r][i])
cudaError_t SigmoidMul(cudaStream_t stream, float* x, const float* gate,
                       int gate_stride, int rows, int cols);
// x[r] += sigmoid(gate[r x gate_stride]) y[r]
cudaError_t AddGated(cudaStream_t stream, float* x, const float* y,
                     const float* gate, int gate_stride, int rows, int cols);
// y[r][n] += bias[n]
cudaError_t AddBias(cudaStream_t stream, float* y, std::int64_t y_stride,
                    const float* bias, int rows, int cols);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_ROWS_H_
