// Routed experts. As in rows.h. A pair is a row and one of its experts: pair
// r x top_k + j is row r's j-th, experts ascending.
#ifndef HOLDFAST_KERNELS_CUDA_MOE_H_
#define HOLDFAST_KERNELS_CUDA_MOE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/weights.h"

namespace holdfast::kernels::cuda {

inline constexpr int kMostTopK = 32;
// Pairs of one expert that a block multiplies at a time.
inline constexpr int kPairTile = 64;

// Device memory for the routing of `rows` rows.
struct Routing {
  std::int32_t* experts = nullptr;  // [pair]
  float* weights = nullptr;         // [pair]
  // Pairs ordered by expert, then number; expert e's start at first[e].
  std::int32_t* order = nullptr;  // [pair]
  std::int32_t* first = nullptr;  // [experts + 1]
  // Tile t: pairs tile_first[t] and up of expert tile_expert[t]; past the last
  // tile the expert is -1.
  std::int32_t* tile_expert = nullptr;
  std::int32_t* tile_first = nullptr;
};
// At most so many tiles.
int MostTiles(const MoeShape& shape, int rows);
std::size_t RoutingBytes(const MoeShape& shape, int rows);
Routing CarveRouting(const MoeShape& shape, int rows, std::byte* memory);

cudaError_t Route(cudaStream_t stream, const MoeShape& shape,
                  const float* logits, int logits_stride, int rows,
                  const Routing& routing);

// y[pair][n] = sum over k of x[row of the pair][k] w[n][k], w the pair's
// expert's: views[expert] (device memory), all of `type`, `outputs` rows of
// `cols`. Rows of x are `cols` apart: row pair / x_share. y points to the
// part's first column.
struct PairProduct {
  const WeightView* views = nullptr;
  WeightType type = WeightType::kF32;
  int outputs = 0;
  int cols = 0;
  const float* x = nullptr;
  int x_share = 1;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};
// Each pair alone, in float: for few rows.
cudaError_t FewPairProduct(cudaStream_t stream, const PairProduct& product,
                           const Routing& routing, int pairs);
// Pairs of an expert together on the matrix unit, from weights rounded to bf16.
cudaError_t GroupedProduct(cudaStream_t stream, const PairProduct& product,
                           const Routing& routing, int tiles);

// out[r] = sum over j ascending of weight x y[pair].
cudaError_t CombinePairs(cudaStream_t stream, const MoeShape& shape,
                         const Routing& routing, const float* y, int rows,
                         float* out);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_MOE_H_
