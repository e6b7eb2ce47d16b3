// The per-target inner loops, as tables of functions: one table of each kind
// for every instruction set the library was built for. A backend picks its
// tables once. What each computes is in ARITHMETIC.md.
#ifndef HOLDFAST_KERNELS_HOST_KERNEL_TABLES_H_
#define HOLDFAST_KERNELS_HOST_KERNEL_TABLES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/host/gdn_kernels.h"
#include "kernels/host/packed_matrix.h"

namespace holdfast::kernels {

// Numbers of k whose widened weights stay in the first-level cache: 24 KiB for
// a panel. A multiple of the quantised block.
inline constexpr int kWidenedK = 192;

// What `block` multiplies: rows against one panel, over `k_count` numbers of k.
struct ProductBlock {
  const float* x = nullptr;  // row tiles one after the other: [tile][k][row]
  int rows = 0;
  const float* w = nullptr;  // as `widen` left it
  int k_count = 0;
  bool first = false;           // sums start here; else they go on from `out`
  const float* bias = nullptr;  // of the panel; only with the last k
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// What `few` multiplies: rows against one panel or a pair.
struct ProductFew {
  const Panel* panels = nullptr;
  int panel_count = 0;
  std::int64_t cols = 0;
  const float* x = nullptr;  // rows of `cols`
  int rows = 0;
  // Of the matrix's column 0; bias may be null.
  const float* bias = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  // The weights that the thread will read next, to be fetched.
  const std::byte* next = nullptr;
};

// Products of activation rows with panels.
struct ProductKernels {
  // The most rows that `few` takes.
  int few_rows;
  // Rows of a tile of `block`; the last tile of a block may have fewer.
  int row_tile;
  // Weights are widened in registers.
  void (*few)(const ProductFew& few);
  // Widens k_count numbers of k from k_start, all 32 columns, in the order that
  // `block` reads.
  void (*widen)(const Panel& panel, std::int64_t k_start, int k_count,
                float* out);
  void (*block)(const ProductBlock& block);
  // One column of a panel, widened.
  void (*column)(const Panel& panel, int column, std::int64_t cols, float* out);
};

// Operations on one row, or on parts of one.
struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, int cols,
                   float* out);
  void (*add)(float* x, const float* y, std::int64_t count);
  void (*silu_mul)(const float* gate, const float* up, int cols, float* out);
  // cos and sin hold rotary_dims / 2 numbers each.
  void (*rope)(float* head, const float* cos, const float* sin,
               int rotary_dims);
};

// Gates and the router, one row at a time.
struct GateKernels {
  // x[i] *= sigmoid(gate[i])
  void (*sigmoid_mul)(const float* gate, int cols, float* x);
  // x[i] = fma(y[i], weight, x[i])
  void (*add_scaled)(const float* y, float weight, int cols, float* x);
  // The same with weight = sigmoid(gate).
  void (*add_gated)(const float* y, float gate, int cols, float* x);
  // Turns scores into softmax weights relative to the largest and returns their
  // lane sum. There is room for the next multiple of 16.
  float (*router)(float* scores, int experts);
};

// One row's attention over keys of one absolute tile, and their combination.
// A partial result of one head is kPartialHeader + head_dim floats: [0] the
// largest score, [16, 32) the lane sums, then the output.
inline constexpr int kPartialHeader = 32;
inline constexpr int kTileKeys = 256;

// One layer's K and V rows of one block, as ARITHMETIC.md lays them out, and
// which of its KV heads are meant.
struct KvTile {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  // K rows that the thread reads next, to be fetched ahead; may be null.
  const std::byte* next = nullptr;
  int first_kv_head = 0;
  int kv_heads = 0;
};

// Many rows of one sequence that share a KV head. A row is a (token, query
// head) pair: row i of the sequence's launch is token i / group, head
// kv_head * group + i % group.
struct PrefillChunk {
  KvShape shape;
  int kv_head = 0;
  int group = 1;      // query heads of a KV head
  int position = 0;   // of token 0
  int written = 0;    // rows of the pool below this are written
  int first_row = 0;  // rows [first_row, first_row + rows) are computed
  int rows = 0;       // at most kPrefillRows
  std::byte* const* blocks = nullptr;
  std::size_t k_offset = 0;  // of the layer's K and V in a block
  std::size_t v_offset = 0;
  const float* q = nullptr;  // of token 0, not scaled
  std::int64_t q_stride = 0;
  float scale = 0.0f;
  float* out = nullptr;  // of token 0
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  // PrefillScratchFloats
};
// Enough rows that unpacking a tile of keys for them costs little; a multiple
// of every row tile.
inline constexpr int kPrefillRows = 192;
// Rows whose scores stay in the first-level cache.
inline constexpr int kScoreRows = 24;

constexpr std::size_t PrefillScratchFloats(int head_dim) {
  const std::size_t dims = head_dim + kPanelColumns;  // panels are whole
  return 2 * kTileKeys * dims + kPrefillRows * (2 * dims + kPartialHeader) +
         kScoreRows * (kTileKeys + dims + 2);
}

// Two factors for each tile, in whole vectors.
constexpr std::size_t CombineFloats(int tiles) {
  return 2 * 16 * ((static_cast<std::size_t>(tiles) + 15) / 16);
}

struct AttentionKernels {
  // q: heads x head_dim, scaled, of the heads that share the tile's KV heads.
  // Keys 0 to keys - 1 of the tile; later rows of it are not used as numbers.
  // scores: scratch of heads x kTileKeys.
  void (*tile)(const KvShape& shape, const KvTile& tile, int keys,
               const float* q, int heads, float* scores, float* partials);
  // Combines the partial results of the next tile with those of all before it,
  // each of `heads` heads.
  void (*merge)(const float* next, int heads, int head_dim, float* total);
  // Combines partial results of a head with the `tiles` that follow, `stride`
  // floats apart, and writes the head's head_dim outputs. scratch:
  // CombineFloats(tiles).
  void (*combine)(const float* first, const float* next, int tiles,
                  std::size_t stride, int head_dim, float* scratch, float* out);
  // All tiles and the combination of many rows.
  void (*prefill)(const PrefillChunk& chunk);
};

// Null where the target has no kernels.
struct KernelTables {
  const ProductKernels* product = nullptr;
  const RowKernels* row = nullptr;
  const AttentionKernels* attention = nullptr;
  const GateKernels* gate = nullptr;
  const GdnKernels* gdn = nullptr;
  const char* target = "";
};

// Of the best target that this machine and Highway's mask of targets allow.
const ProductKernels* ChooseProductKernels();
const RowKernels* ChooseRowKernels();
const AttentionKernels* ChooseAttentionKernels();
const GateKernels* ChooseGateKernels();

// All of them; pointers are null where the machine has no fused multiply-add.
KernelTables ChooseKernels();

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_KERNEL_TABLES_H_
