#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpLanes;
constexpr int kTileKeys = kBlockTokens;
constexpr int kWarpKeys = kTileKeys / kWarps;

// A partial result: max, sum, then head_dim numbers of output.
constexpr int kPartialHeader = 2;
__host__ __device__ constexpr int PartialFloats(int head_dim) {
  return kPartialHeader + head_dim;
}

// Where the partial of (span, row, head, tile) lies.
struct PartialShape {
  int heads = 0;
  int tiles = 0;
  int floats = 0;

  __device__ __forceinline__ std::int64_t At(int span, int row, int head,
                                             int tile) const {
    return (((std::int64_t{span} * kDecodeRows + row) * heads + head) * tiles +
            tile) *
           floats;
  }
};

// Shared memory: a maximum and a sum for each warp's rows, the sum of outputs,
// then the queries where they are kept here.
template <int kDim>
struct Room {
  static constexpr int kFloats = 2 * kWarps * kTileRows + kTileRows * kDim;
  static constexpr int kShared = kFloats * static_cast<int>(sizeof(float)) +
                                 kWarps * QueryTile<kDim>::kBytes;
};

// Brings the warps' outputs to the rows' common maximum and adds them in the
// order of their keys. `room` is the block's.
template <int kDim>
__device__ __forceinline__ void MergeWarps(AttentionTile<kDim>& tile,
                                           float* room) {
  float* const maxima = room;
  float* const sums = room + kWarps * kTileRows;
  float* const out = sums + kWarps * kTileRows;
  const int group = Lane() / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group + half * kTileRows / 2;
    if (Lane() % 4 != 0) continue;
    maxima[WarpInBlock() * kTileRows + row] = tile.max[half];
    sums[WarpInBlock() * kTileRows + row] = tile.sum[half];
  }
  __syncthreads();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group + half * kTileRows / 2;
    float most = maxima[row];
    for (int w = 1; w < kWarps; ++w) {
      most = fmaxf(most, maxima[w * kTileRows + row]);
    }
    factor[half] = exp2f(tile.max[half] - most);
  }
  for (int w = 0; w < kWarps; ++w) {
    if (w == WarpInBlock()) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = group + i / 2 * kTileRows / 2;
          float& sum = out[row * kDim + n * 8 + Lane() % 4 * 2 + i % 2];
          const float part = tile.out[n][i] * factor[i / 2];
          sum = w == 0 ? part : sum + part;
        }
      }
    }
    __syncthreads();
  }
}

// Grid: [tiles of 256 keys][KV heads x tiles of 16 rows][spans]. With one block
// a multiprocessor as the bound no register is spilled.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    DecodeKernel(PoolShape pool, AttentionArguments arguments,
                 const SpanPlace* spans, PartialShape shape, float* partial) {
  const SpanPlace span = spans[blockIdx.z];
  const int group = arguments.heads / pool.kv_heads;
  const int rows = span.rows * group;
  const int kv_head = static_cast<int>(blockIdx.y) % pool.kv_heads;
  const int first = static_cast<int>(blockIdx.y) / pool.kv_heads * kTileRows;
  const int tile_index = static_cast<int>(blockIdx.x);
  const int end = span.position + span.rows;
  if (span.rows > kDecodeRows || first >= rows ||
      tile_index * kTileKeys >= end) {
    return;
  }
  float* const room = SharedMemory<float>();
  const int upper = first + Lane() / 4;
  const int lower = upper + kTileRows / 2;
  const auto query_of = [&](int m) -> const float* {
    if (m >= rows) return nullptr;
    return arguments.q +
           std::int64_t{span.first_row + m / group} * arguments.q_stride +
           (kv_head * group + m % group) * kDim;
  };
  QueryTile<kDim> query;
  query.Load(query_of(upper), query_of(lower),
             reinterpret_cast<uint4*>(room + Room<kDim>::kFloats) +
                 WarpInBlock() * (QueryTile<kDim>::kBytes / sizeof(uint4)));
  const auto limit_of = [&](int m) {
    return m < rows ? span.position + m / group + 1 : 0;
  };
  const KeyLimits limits = {limit_of(upper), limit_of(lower)};

  AttentionTile<kDim> tile;
  tile.Clear();
  const int head_bytes = HeadGranule(kDim) * 2;
  const std::byte* const block = span.blocks[tile_index] + kv_head * head_bytes;
  constexpr int kStepKeys = kStepGranules<kDim> * kGranuleTokens;
  for (int key = WarpInBlock() * kWarpKeys;
       key < (WarpInBlock() + 1) * kWarpKeys; key += kStepKeys) {
    const int first_key = tile_index * kTileKeys + key;
    if (first_key >= end) break;  // the whole warp
    const std::byte* granule =
        block + key / kGranuleTokens * pool.granule_bytes;
    tile.Step(query, granule + pool.k_offset, granule + pool.v_offset,
              pool.granule_bytes, first_key, end, limits,
              arguments.scale * kLog2E);
  }
  tile.Finish();
  MergeWarps(tile, room);

  const int row_of_thread = static_cast<int>(threadIdx.x) / (kThreads / 16);
  const int m = first + row_of_thread;
  if (m >= rows) return;
  float* const to = partial + shape.At(static_cast<int>(blockIdx.z), m / group,
                                       kv_head * group + m % group, tile_index);
  float most = room[row_of_thread];
  for (int w = 1; w < kWarps; ++w) {
    most = fmaxf(most, room[w * kTileRows + row_of_thread]);
  }
  float sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) {
    sum += room[(kWarps + w) * kTileRows + row_of_thread] *
           exp2f(room[w * kTileRows + row_of_thread] - most);
  }
  const int lane = static_cast<int>(threadIdx.x) % (kThreads / 16);
  if (lane == 0) {
    to[0] = most;
    to[1] = sum;
  }
  const float* out = room + 2 * kWarps * kTileRows + row_of_thread * kDim;
  for (int d = lane; d < kDim; d += kThreads / 16) {
    to[kPartialHeader + d] = out[d];
  }
}

// Grid: [heads][kDecodeRows][spans]; a thread a dim.
__global__ void CombineKernel(AttentionArguments arguments, int head_dim,
                              const SpanPlace* spans, PartialShape shape,
                              const float* partial) {
  const SpanPlace span = spans[blockIdx.z];
  const int row = static_cast<int>(blockIdx.y);
  if (span.rows > kDecodeRows || row >= span.rows) return;
  const int head = static_cast<int>(blockIdx.x);
  const int tiles = (span.position + row) / kTileKeys + 1;
  const float* parts =
      partial + shape.At(static_cast<int>(blockIdx.z), row, head, 0);
  float most = parts[0];
  for (int i = 1; i < tiles; ++i) most = fmaxf(most, parts[i * shape.floats]);
  const int dim = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  float out = 0.0f;
  for (int i = 0; i < tiles; ++i) {
    const float* part = parts + i * shape.floats;
    const float factor = exp2f(part[0] - most);
    sum = fmaf(part[1], factor, sum);
    out = fmaf(part[kPartialHeader + dim], factor, out);
  }
  arguments.out[(std::int64_t{span.first_row + row} * arguments.heads + head) *
                    head_dim +
                dim] = out / sum;
}

template <int kDim>
cudaError_t LaunchDecode(cudaStream_t stream, const PoolShape& pool,
                         const AttentionArguments& arguments,
                         const LaunchTable& table, int first_span, int spans,
                         float* partial) {
  const int group = arguments.heads / pool.kv_heads;
  const unsigned row_tiles = BlocksFor(kDecodeRows * group, kTileRows);
  const PartialShape shape = {
      arguments.heads,
      static_cast<int>(BlocksFor(table.most_positions, kTileKeys)),
      PartialFloats(kDim)};
  const dim3 grid(static_cast<unsigned>(shape.tiles),
                  static_cast<unsigned>(pool.kv_heads) * row_tiles,
                  static_cast<unsigned>(spans));
  const SpanPlace* places = table.spans + first_span;
  const cudaError_t error =
      Launch(DecodeKernel<kDim>, grid, kThreads, Room<kDim>::kShared, stream,
             pool, arguments, places, shape, partial);
  if (error != cudaSuccess) return error;
  const dim3 rows(static_cast<unsigned>(arguments.heads), kDecodeRows,
                  static_cast<unsigned>(spans));
  return Launch(CombineKernel, rows, kDim, 0, stream, arguments, kDim, places,
                shape, partial);
}

}  // namespace

std::size_t DecodePartialBytes(int spans, int heads, int head_dim,
                               int positions) {
  return std::size_t{BlocksFor(positions, kTileKeys)} * spans * kDecodeRows *
         heads * PartialFloats(head_dim) * sizeof(float);
}

cudaError_t DecodeAttention(cudaStream_t stream, const PoolShape& pool,
                            const AttentionArguments& arguments,
                            const LaunchTable& table, int first_span, int spans,
                            float* partial) {
  switch (pool.head_dim) {
    case 64:
      return LaunchDecode<64>(stream, pool, arguments, table, first_span, spans,
                              partial);
    case 128:
      return LaunchDecode<128>(stream, pool, arguments, table, first_span,
                               spans, partial);
    case 256:
      return LaunchDecode<256>(stream, pool, arguments, table, first_span,
                               spans, partial);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace holdfast::kernels::cuda
