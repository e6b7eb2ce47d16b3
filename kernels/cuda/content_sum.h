// The two content sums of shared/content_sum, on the device. Order-free, so the
// values do not depend on how threads come to add.
#ifndef HOLDFAST_KERNELS_CUDA_CONTENT_SUM_H_
#define HOLDFAST_KERNELS_CUDA_CONTENT_SUM_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace holdfast::kernels::cuda {

// Adds to sums[0] and sums[1] (device memory, zero before) the words at bytes
// `offset` to offset + bytes of each of `count` blocks, as if joined, and their
// length. bytes is a multiple of 8.
cudaError_t AddContentSums(cudaStream_t stream, const std::byte* const* blocks,
                           int count, std::size_t offset, std::size_t bytes,
                           unsigned long long* sums);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_CONTENT_SUM_H_
