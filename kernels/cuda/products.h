// Products with weights in their storage format, and widening. As in rows.h.
#ifndef HOLDFAST_KERNELS_CUDA_PRODUCTS_H_
#define HOLDFAST_KERNELS_CUDA_PRODUCTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/weights.h"

namespace holdfast::kernels::cuda {

// Most rows of FewRowProduct.
inline constexpr int kFewRows = 8;

// y[r][n] = sum over k of x[r][k] w[n][k], + bias[n] when there is a bias. x
// has rows of w.cols, y rows of y_stride; y and bias point to the part's first
// column. In float; reads the weights once.
cudaError_t FewRowProduct(cudaStream_t stream, const WeightView& w,
                          const float* x, int rows, const float* bias, float* y,
                          std::int64_t y_stride);

// Rows first_row to first_row + rows as bf16, PaddedCols(w.cols) apart.
cudaError_t WidenToBf16(cudaStream_t stream, const WeightView& w,
                        std::int64_t first_row, std::int64_t rows,
                        std::uint16_t* out);

// x, rows of `cols`, to bf16 with rows PaddedCols(cols) apart.
cudaError_t NarrowRows(cudaStream_t stream, const float* x, int rows,
                       std::int64_t cols, std::uint16_t* out);

// out[r] = row ids[r], widened to float.
cudaError_t EmbedRows(cudaStream_t stream, const WeightView& w,
                      const std::int32_t* ids, int rows, float* out);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_PRODUCTS_H_
