// Causal attention over the pool: how rows, heads and tiles are spread over
// threads. The arithmetic is in the kernels; no split here can change a bit.
#ifndef HOLDFAST_KERNELS_HOST_ATTENTION_H_
#define HOLDFAST_KERNELS_HOST_ATTENTION_H_

#include <vector>

#include "kernels/backend.h"
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
  // One row against one tile, into partials_.
  void RunTile(const AttentionCall& call, const RowSpan& span, int first,
               int tiles, int index, int thread);
  // The outputs of rows [first, first + rows), whose tiles are computed.
  void CombineTiles(const AttentionCall& call, const RowSpan& span, int first,
                    int rows);
  // All rows of the span, tiles unpacked once for many rows.
  void RunMany(const AttentionCall& call, const RowSpan& span);

  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  const Exactness exactness_;
  // Tiles 0 to next - 1 of a row that one thread has computed one after the
  // other, each combined with those before it at once: less goes from thread to
  // thread, and less is left when all tiles are there.
  struct alignas(64) Lead {
    int row = -1;
    int next = 0;
  };

  HostMemory queries_;         // scaled, of one batch of rows
  HostMemory partials_;        // [row][tile][head]
  std::vector<Lead> leads_;    // of each thread
  std::vector<int> combined_;  // of each row: tiles that are in its first place
  HostMemory thread_scratch_;
  std::size_t thread_floats_ = 0;  // of thread_scratch_, each thread
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_ATTENTION_H_
