// Causal attention over the paged pool.
//
// Matrix units (bf16 rows of head_dim 64, 128 or 256): a tile of query rows
// holds a KV head's whole group of query heads, row m being head m % group of
// token m / group. Two ways:
// * prefill, for spans of more than kDecodeRows rows: a block of four warps,
//   16 tile rows each, walks keys from 0 upwards, staged in shared memory;
// * decode, for others: keys are cut in absolute tiles of 256; each tile's
//   (max, sum, output) is written out, a second kernel combines them in
//   ascending order.
// A row's result depends on its query, its position and the keys up to it: not
// on the other rows, nor on rows past the sequence's end in a granule, whatever
// is there. The two ways differ in the last bits.
//
// Pools of f32 rows (for comparisons) take a plain kernel, any head_dim.
#ifndef HOLDFAST_KERNELS_CUDA_ATTENTION_H_
#define HOLDFAST_KERNELS_CUDA_ATTENTION_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/kv_pool.h"
#include "kernels/cuda/launch_table.h"

namespace holdfast::kernels::cuda {

inline constexpr int kDecodeRows = 4;

struct AttentionArguments {
  const float* q = nullptr;  // [row][q_stride], heads from the row's start
  int q_stride = 0;
  int heads = 0;
  float scale = 0.0f;
  float* out = nullptr;  // [row][heads x head_dim]
};

bool AttentionHasHeadDim(int head_dim);

// All spans of the table of more than kDecodeRows rows.
cudaError_t PrefillAttention(cudaStream_t stream, const PoolShape& pool,
                             const AttentionArguments& arguments,
                             const LaunchTable& table);

// Bytes of partial results that DecodeAttention needs for `spans` spans that
// reach `positions` positions.
std::size_t DecodePartialBytes(int spans, int heads, int head_dim,
                               int positions);
// Spans first_span to first_span + spans, those of at most kDecodeRows rows.
cudaError_t DecodeAttention(cudaStream_t stream, const PoolShape& pool,
                            const AttentionArguments& arguments,
                            const LaunchTable& table, int first_span, int spans,
                            float* partial);

// All spans, f32 rows.
cudaError_t PlainAttention(cudaStream_t stream, const PoolShape& pool,
                           const AttentionArguments& arguments,
                           const LaunchTable& table);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_ATTENTION_H_
