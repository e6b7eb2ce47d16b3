#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpLanes;
constexpr int kBlockRows = kWarps * kTileRows;

// Shared memory: two stages of kStepGranules granules, K then V of each, then
// the queries where they are kept here.
template <int kDim>
struct Stage {
  static constexpr int kGranuleBytes = HeadGranule(kDim) * 2;
  static constexpr int kViewBytes = kStepGranules<kDim> * kGranuleBytes;
  static constexpr int kBytes = 2 * kViewBytes;
  static constexpr int kShared = 2 * kBytes + kWarps * QueryTile<kDim>::kBytes;
};

// One KV head of one sequence.
struct HeadKeys {
  std::byte* const* blocks;
  std::size_t k_at;  // in a block
  std::size_t v_at;
  std::size_t granule_bytes;
};

// Starts the copy of the granules from key first_key on; granules from `end` on
// are left as they are.
template <int kDim>
__device__ __forceinline__ void CopyStage(const HeadKeys& keys, int first_key,
                                          int end, std::byte* stage) {
  constexpr int kPieces = Stage<kDim>::kGranuleBytes / 16;
  constexpr int kGranules = kStepGranules<kDim>;
#pragma unroll
  for (int i = 0; i < kGranules; ++i) {
    const int key = first_key + i * kGranuleTokens;
    if (key >= end) break;
    const std::byte* granule =
        keys.blocks[key / kBlockTokens] +
        key % kBlockTokens / kGranuleTokens * keys.granule_bytes;
    std::byte* to = stage + i * Stage<kDim>::kGranuleBytes;
    for (int piece = threadIdx.x; piece < kPieces; piece += kThreads) {
      CopyAsync16(to + piece * 16, granule + keys.k_at + piece * 16);
      CopyAsync16(to + Stage<kDim>::kViewBytes + piece * 16,
                  granule + keys.v_at + piece * 16);
    }
  }
  CommitCopies();
}

template <int kDim>
__device__ __forceinline__ void WriteRow(const AttentionTile<kDim>& tile,
                                         int half, float* row) {
  const float scale = 1.0f / tile.sum[half];
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    float2 pair;
    pair.x = tile.out[n][2 * half] * scale;
    pair.y = tile.out[n][2 * half + 1] * scale;
    *reinterpret_cast<float2*>(row + n * 8 + Lane() % 4 * 2) = pair;
  }
}

// Grid: [tiles of 64 rows, the last first][KV heads][spans].
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    PrefillKernel(PoolShape pool, AttentionArguments arguments,
                  const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.z];
  const int group = arguments.heads / pool.kv_heads;
  const int tile_index = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int first = tile_index * kBlockRows;
  const int rows = span.rows * group;
  if (span.rows <= kDecodeRows || first >= rows) return;

  std::byte* const shared = SharedMemory<std::byte>();
  const int kv_head = static_cast<int>(blockIdx.y);
  const std::size_t head_at =
      std::size_t{blockIdx.y} * Stage<kDim>::kGranuleBytes;
  const HeadKeys keys = {span.blocks, pool.k_offset + head_at,
                         pool.v_offset + head_at, pool.granule_bytes};

  // The lane's two rows.
  const int upper = first + WarpInBlock() * kTileRows + Lane() / 4;
  const int lower = upper + kTileRows / 2;
  const auto query_of = [&](int m) -> const float* {
    if (m >= rows) return nullptr;
    return arguments.q +
           std::int64_t{span.first_row + m / group} * arguments.q_stride +
           (kv_head * group + m % group) * kDim;
  };
  QueryTile<kDim> query;
  query.Load(query_of(upper), query_of(lower),
             reinterpret_cast<uint4*>(shared + 2 * Stage<kDim>::kBytes +
                                      WarpInBlock() * QueryTile<kDim>::kBytes));
  const auto limit_of = [&](int m) {
    return m < rows ? span.position + m / group + 1 : 0;
  };
  const KeyLimits limits = {limit_of(upper), limit_of(lower)};

  const int last = Min(first + kBlockRows, rows) - 1;
  const int end = span.position + last / group + 1;  // of the block's keys
  constexpr int kStepKeys = kStepGranules<kDim> * kGranuleTokens;
  const float scale = arguments.scale * kLog2E;
  AttentionTile<kDim> tile;
  tile.Clear();
  CopyStage<kDim>(keys, 0, end, shared);
  int turn = 0;
  for (int key = 0; key < end; key += kStepKeys, turn ^= 1) {
    std::byte* const stage = shared + turn * Stage<kDim>::kBytes;
    CopyStage<kDim>(keys, key + kStepKeys, end,
                    shared + (turn ^ 1) * Stage<kDim>::kBytes);
    WaitCopies<1>();
    __syncthreads();
    tile.Step(query, stage, stage + Stage<kDim>::kViewBytes,
              Stage<kDim>::kGranuleBytes, key, end, limits, scale);
    __syncthreads();  // before the stage is overwritten
  }
  tile.Finish();
  const auto out_of = [&](int m) {
    return arguments.out +
           (std::int64_t{span.first_row + m / group} * arguments.heads +
            kv_head * group + m % group) *
               kDim;
  };
  if (upper < rows) WriteRow(tile, 0, out_of(upper));
  if (lower < rows) WriteRow(tile, 1, out_of(lower));
}

template <int kDim>
cudaError_t LaunchPrefill(cudaStream_t stream, const PoolShape& pool,
                          const AttentionArguments& arguments,
                          const LaunchTable& table) {
  const int group = arguments.heads / pool.kv_heads;
  const dim3 grid(
      BlocksFor(std::int64_t{table.longest_span} * group, kBlockRows),
      static_cast<unsigned>(pool.kv_heads),
      static_cast<unsigned>(table.span_count));
  return Launch(PrefillKernel<kDim>, grid, kThreads, Stage<kDim>::kShared,
                stream, pool, arguments, table.spans);
}

}  // namespace

bool AttentionHasHeadDim(int head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

cudaError_t PrefillAttention(cudaStream_t stream, const PoolShape& pool,
                             const AttentionArguments& arguments,
                             const LaunchTable& table) {
  switch (pool.head_dim) {
    case 64:
      return LaunchPrefill<64>(stream, pool, arguments, table);
    case 128:
      return LaunchPrefill<128>(stream, pool, arguments, table);
    case 256:
      return LaunchPrefill<256>(stream, pool, arguments, table);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace holdfast::kernels::cuda
