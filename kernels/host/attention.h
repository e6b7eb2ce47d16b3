// Causal attention over the pool: how rows, heads and tiles are spread over
// threads. The arithmetic is in the kernels; no split here can change a bit.
#ifndef HOLDFAST_KERNELS_HOST_ATTENTION_H_
#define HOLDFAST_KERNELS_HOST_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/fetch.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/memory.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels {

// The rows of one call of Backend::Attention.
struct AttentionCall {
  KvShape shape;
  int layer = 0;
  const float* q = nullptr;
  int row_stride = 0;
  int heads = 0;
  float scale = 0.0f;
  float* out = nullptr;
};

class HostAttention {
 public:
  // kGrid: the tiles of a single row are combined from the last to the first.
  HostAttention(const AttentionKernels& kernels, ThreadPool& pool,
                Exactness exactness)
      : kernels_(kernels), pool_(pool), exactness_(exactness) {}

  // Scratch for the largest call.
  Status Prepare(const Limits& limits);

  void Run(const AttentionCall& call, const RowSpan& span);

 private:
  bool IsPerturbed(const RowSpan& span) const {
    return exactness_ == Exactness::kGrid && span.rows == 1;
  }
  // Rows [first, first + rows) of the span, each against tiles read in place.
  void RunRows(const AttentionCall& call, const RowSpan& span, int first,
               int rows);
  // Into how many parts the KV heads of a row with so many keys are shared out:
  // more than one where there are too few tiles to keep the threads busy. With
  // more tiles rows of memory are better read as a whole.
  int PartsOf(const AttentionCall& call, int keys, int rows) const;
  // Of batch_: tile index % tiles of part index / tiles % parts of a row.
  void RunTile(int index, int thread);
  // What the row's part has in its first place, its tiles combined, as outputs.
  void FinishPart(int row, int part, int thread);
  // Keys that the thread reads after those of RunTile(index), to be fetched;
  // null: none are known.
  const std::byte* KeysAfter(int index, int thread) const;
  // The query of a row's part, scaled: each thread has its own.
  const float* ScaledQuery(int row, int part, int thread);
  // Where the partial results of a row's part of a tile are.
  float* Partials(int row, int part, int tile) const;
  // The outputs of a row's head, from its first `tiles` tiles.
  void CombineHead(int row, int head, int tiles, int thread);
  // The outputs of batch_ that are not finished, whose tiles are computed.
  void CombineTiles();
  // All rows of the span, tiles unpacked once for many rows.
  void RunMany(const AttentionCall& call, const RowSpan& span);

  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  const Exactness exactness_;
  // Rows that are in work: together, because each line of memory that a thread
  // has to wait for is a good part of a microsecond between distant cores.
  struct alignas(kCacheLine) Batch {
    AttentionCall call;
    RowSpan span;
    int first = 0;  // of the span's rows
    int rows = 0;
    int tiles = 0;  // of the last row
    int parts = 1;  // equal numbers of KV heads that are computed by themselves
    std::uint32_t number = 0;
    bool perturbed = false;
  };
  // What a thread has done in a batch.
  struct alignas(kCacheLine) Progress {
    std::uint32_t batch = 0;
    int query = -1;  // row's part whose scaled query it has
    // Tiles 0 to next - 1 of a row's part that it has computed one after the
    // other, each combined with those before it at once: less goes from thread
    // to thread, and less is left when all tiles are there.
    int part = -1;
    int next = 0;
  };

  static constexpr int kFinished = -1;
  struct alignas(kCacheLine) Combined {
    int tiles = 0;  // that are in the first place, or kFinished
  };

  Batch batch_;
  HostMemory partials_;             // [row][tile][head]
  std::vector<Progress> progress_;  // of each thread
  std::vector<Combined> combined_;  // of each row's part
  HostMemory thread_scratch_;
  std::size_t thread_floats_ = 0;  // of thread_scratch_, each thread
  std::size_t query_floats_ = 0;   // of those the last, a scaled query
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_ATTENTION_H_
