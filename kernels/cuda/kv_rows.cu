#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_rows.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void StoreNumber(std::byte* head, int element_bytes,
                                            int index, float value) {
  if (element_bytes == 2) {
    reinterpret_cast<std::uint16_t*>(head)[index] =
        static_cast<std::uint16_t>(FloatToBf16(value));
  } else {
    reinterpret_cast<float*>(head)[index] = value;
  }
}

// A block a row; a thread some dims of its heads.
__global__ void StoreKvKernel(PoolShape pool, const float* k, const float* v,
                              int row_stride, const RowPlace* places) {
  const RowPlace place = places[blockIdx.x];
  const int token = place.position % kBlockTokens;
  const std::int64_t at = std::int64_t{place.row} * row_stride;
  const std::size_t head_bytes =
      std::size_t{static_cast<unsigned>(HeadGranule(pool.head_dim))} *
      pool.element_bytes;
  std::byte* granule =
      place.block + token / kGranuleTokens * pool.granule_bytes;
  const int lane = token % kGranuleTokens;
  for (int i = threadIdx.x; i < pool.kv_heads * pool.head_dim; i += kThreads) {
    std::byte* head = granule + i / pool.head_dim * head_bytes;
    const int dim = i % pool.head_dim;
    StoreNumber(head + pool.k_offset, pool.element_bytes, KIndex(lane, dim),
                k[at + i]);
    StoreNumber(head + pool.v_offset, pool.element_bytes, VIndex(lane, dim),
                v[at + i]);
  }
}

// A block a granule of a layer; the row's numbers lie apart in it.
__global__ void ZeroRowsKernel(PoolShape pool, std::size_t layer_bytes,
                               std::byte* block, int first_row) {
  const int granule = static_cast<int>(blockIdx.x);
  const std::size_t at =
      blockIdx.y * layer_bytes + granule * pool.granule_bytes;
  const int first = first_row - granule * kGranuleTokens;
  const int numbers = pool.kv_heads * pool.head_dim * kGranuleTokens;
  const int head_numbers = HeadGranule(pool.head_dim);
  for (int i = threadIdx.x; i < numbers; i += kThreads) {
    const int within = i % head_numbers;
    const int k_token = within / kKChunkDims % kGranuleTokens;
    const int v_token = within % kGranuleTokens;
    if (k_token >= first) {
      StoreNumber(block + pool.k_offset + at, pool.element_bytes, i, 0.0f);
    }
    if (v_token >= first) {
      StoreNumber(block + pool.v_offset + at, pool.element_bytes, i, 0.0f);
    }
  }
}

}  // namespace

cudaError_t StoreKv(cudaStream_t stream, const PoolShape& pool, const float* k,
                    const float* v, int row_stride, const LaunchTable& table) {
  return Launch(StoreKvKernel, dim3(table.row_count), kThreads, 0, stream, pool,
                k, v, row_stride, table.rows);
}

cudaError_t ZeroRows(cudaStream_t stream, const PoolShape& pool, int layers,
                     std::byte* block, int first_row) {
  const std::size_t layer_bytes =
      pool.granule_bytes * (kBlockTokens / kGranuleTokens);
  const dim3 grid(kBlockTokens / kGranuleTokens, layers);
  return Launch(ZeroRowsKernel, grid, kThreads, 0, stream, pool, layer_bytes,
                block, first_row);
}

}  // namespace holdfast::kernels::cuda
