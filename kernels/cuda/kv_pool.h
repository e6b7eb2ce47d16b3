// Where a K or V number lies in a block of the CUDA backend's pool: part of its
// cache format. A layer's 256 tokens of a view are granules of 16; a granule
// holds its KV heads one after the other, and of a head
//   K: [head_dim / 32][16 tokens][32 dims]: what the eight lanes of a matrix
//      unit's load fetch lies together;
//   V: [head_dim][16 tokens]: a lane fetches neighbouring tokens of one dim.
// head_dim is a multiple of 32.
#ifndef HOLDFAST_KERNELS_CUDA_KV_POOL_H_
#define HOLDFAST_KERNELS_CUDA_KV_POOL_H_

#include <cstddef>

#include "kernels/backend.h"
#include "shared/cache_layout.h"

#if defined(__CUDACC__)
#define HF_HOST_DEVICE __host__ __device__
#else
#define HF_HOST_DEVICE
#endif

namespace holdfast::kernels::cuda {

inline constexpr int kKChunkDims = 32;

// Numbers of one head in one granule.
HF_HOST_DEVICE constexpr int HeadGranule(int head_dim) {
  return head_dim * kGranuleTokens;
}

// Of a head's numbers in a granule.
HF_HOST_DEVICE constexpr int KIndex(int token, int dim) {
  return (dim / kKChunkDims * kGranuleTokens + token) * kKChunkDims +
         dim % kKChunkDims;
}
HF_HOST_DEVICE constexpr int VIndex(int token, int dim) {
  return dim * kGranuleTokens + token;
}

// A pool's shape as the kernels take it; offsets and strides in bytes.
struct PoolShape {
  int kv_heads = 0;
  int head_dim = 0;
  int element_bytes = 0;
  std::size_t k_offset = 0;  // of the layer's K rows in a block
  std::size_t v_offset = 0;
  std::size_t granule_bytes = 0;
};

inline PoolShape PoolShapeOf(const KvShape& shape, int layer) {
  PoolShape pool;
  pool.kv_heads = shape.kv_heads;
  pool.head_dim = shape.head_dim;
  pool.element_bytes = static_cast<int>(shape.ElementBytes());
  const std::size_t layer_bytes = shape.TokenBytes() * kBlockTokens;
  pool.k_offset = layer_bytes * layer;
  pool.v_offset = layer_bytes * (shape.layers + layer);
  pool.granule_bytes = shape.TokenBytes() * kGranuleTokens;
  return pool;
}

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_KV_POOL_H_
