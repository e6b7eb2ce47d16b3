// Where a K or V number lies in a block of the pool (ARITHMETIC.md, "Rows in
// the pool"): part of the cache's format.
#ifndef HOLDFAST_KERNELS_HOST_KV_LAYOUT_H_
#define HOLDFAST_KERNELS_HOST_KV_LAYOUT_H_

#include <cstddef>

#include "kernels/backend.h"
#include "shared/cache_layout.h"

namespace holdfast::kernels {

// Bytes of one layer's K rows, or V rows, in a block.
inline std::size_t LayerBytes(const KvShape& shape) {
  return shape.TokenBytes() * kBlockTokens;
}
inline std::size_t KOffset(const KvShape& shape, int layer) {
  return LayerBytes(shape) * layer;
}
inline std::size_t VOffset(const KvShape& shape, int layer) {
  return LayerBytes(shape) * (shape.layers + layer);
}

// Index of a K number in its layer, counted in elements.
//   bf16: [granule][kv head][dim / 2][16 tokens][2]
//   f32:  [granule][kv head][dim][16 tokens]
inline std::size_t KIndex(const KvShape& shape, int token, int kv_head,
                          int dim) {
  const int granule = token / kGranuleTokens;
  const int lane = token % kGranuleTokens;
  const std::size_t head =
      (static_cast<std::size_t>(granule) * shape.kv_heads + kv_head) *
      shape.head_dim * kGranuleTokens;
  if (shape.state_type == StateType::kF32) {
    return head + static_cast<std::size_t>(dim) * kGranuleTokens + lane;
  }
  return head + static_cast<std::size_t>(dim / 2) * 2 * kGranuleTokens +
         lane * 2 + dim % 2;
}

// V: [token][kv head][dim]
inline std::size_t VIndex(const KvShape& shape, int token, int kv_head,
                          int dim) {
  return (static_cast<std::size_t>(token) * shape.kv_heads + kv_head) *
             shape.head_dim +
         dim;
}

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_KV_LAYOUT_H_
