// Rows of the pool: written from activations, zeroed. As in
// rows.h.
#ifndef HOLDFAST_KERNELS_CUDA_KV_ROWS_H_
#define HOLDFAST_KERNELS_CUDA_KV_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kv_pool.h"
#include "kernels/cuda/launch_table.h"

namespace holdfast::kernels::cuda {

cudaError_t StoreKv(cudaStream_t stream, const PoolShape& pool, const float* k,
                    const float* v, int row_stride, const LaunchTable& table);
// Zeroes the rows of a block from first_row on, of `layers` layers; pool: of
// layer 0.
cudaError_t ZeroRows(cudaStream_t stream, const PoolShape& pool, int layers,
                     std::byte* block, int first_row);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_KV_ROWS_H_
