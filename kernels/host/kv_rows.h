// Writing, copying and clearing of K and V rows in blocks.
#ifndef HOLDFAST_KERNELS_HOST_KV_ROWS_H_
#define HOLDFAST_KERNELS_HOST_KV_ROWS_H_

#include <cstddef>

#include "kernels/backend.h"

namespace holdfast::kernels {

// Rounds one token's k and v (kv_heads x head_dim each) to the state type and
// writes them as row `token` of the block.
void WriteKvRow(const KvShape& shape, int layer, int token, const float* k,
                const float* v, std::byte* block);

// Copies the granules that hold rows below `rows`, all layers, K and V.
void CopyRows(const KvShape& shape, const std::byte* from, int rows,
              std::byte* to);

// Zeroes rows from first_row to the block's end, all layers, K and V.
void ZeroRows(const KvShape& shape, std::byte* block, int first_row);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_KV_ROWS_H_
