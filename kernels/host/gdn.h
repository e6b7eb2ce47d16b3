// A gated delta net layer: how rows, heads and stripes of the state are spread
// over threads. The arithmetic is in the kernels; no split here can change a
// bit.
#ifndef HOLDFAST_KERNELS_HOST_GDN_H_
#define HOLDFAST_KERNELS_HOST_GDN_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/gdn_kernels.h"
#include "kernels/host/memory.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels {

// The arguments of Backend::GatedDeltaNet.
struct GdnCall {
  GdnShape shape;
  GdnWeights weights;
  GdnPlace place;
  const float* projected = nullptr;
  int row_stride = 0;
  std::span<const RowSpan> spans;
  float* out = nullptr;
};

// Rows of one sequence in a pass.
struct GdnPiece {
  RowSpan span;
  int row = 0;  // of its first row in the pass
};

// Where a pass's convolved rows lie: each head's together, so that one head's
// recurrence reads a run of memory.
struct GdnRows {
  int count = 0;
  float* q = nullptr;  // [key head][row][key_dim]
  float* k = nullptr;
  float* v = nullptr;     // [value head][row][value_dim]; outputs replace it
  float* beta = nullptr;  // [value head][row], heads gate_stride apart
  float* decay = nullptr;
  // Threads that work on different heads write no cache line together.
  int gate_stride = 0;
};

class HostGdn {
 public:
  HostGdn(const GdnKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  // Scratch for the largest call; refuses shapes that no kernel computes.
  Status Prepare(const Limits& limits);

  void Run(const GdnCall& call);

  // The recurrence alone, of one pass; for benchmarks.
  void Recur(const GdnCall& call, std::span<const GdnPiece> pieces,
             const GdnRows& rows);

 private:
  // Consecutive heads of one kind.
  struct Heads {
    int first = 0;
    int count = 1;
  };

  // Takes rows of the launch from span `span`, row `row` of it on, as many as a
  // pass holds, and moves both on.
  void TakePieces(const GdnCall& call, std::size_t& span, int& row);
  GdnRows Carve(const GdnShape& shape, int count) const;
  // A piece's own part of a pass's rows: of one row all heads lie together.
  static GdnRows CarvePiece(const GdnShape& shape, GdnRows rows,
                            const GdnPiece& piece);
  // How many tasks share the key heads of a piece when `pieces` are computed,
  // and the heads of one of them.
  int PartsOf(const GdnShape& shape, std::size_t pieces) const;
  static Heads PartOf(const GdnShape& shape, int part, int parts);

  // Every step over all threads before the next.
  void RunSteps(const GdnCall& call, const GdnRows& rows);
  // Key heads and their value heads from first to last step, on one thread: few
  // rows are not worth waiting for each other.
  void RunHeads(const GdnCall& call, const GdnRows& all);
  void RunKeyHeads(const GdnCall& call, const GdnRows& rows,
                   const GdnPiece& piece, Heads keys) const;

  // More than one head may be given where the rows are one.
  // `heads` are of [q heads | k heads | v heads].
  void ConvHeads(const GdnCall& call, const GdnRows& rows,
                 const GdnPiece& piece, Heads heads) const;
  void Gates(const GdnCall& call, const GdnRows& rows, const GdnPiece& piece,
             Heads heads) const;
  // The first `stripes` of a head from `stripe` on; after them comes head
  // `next`, if there is one.
  void RecurStripes(const GdnCall& call, const GdnRows& rows,
                    const GdnPiece& piece, int head, int stripe, int stripes,
                    int next = -1) const;
  void Step(const GdnCall& call, const GdnRows& rows, const GdnPiece& piece,
            Heads heads) const;
  void Norm(const GdnCall& call, const GdnRows& rows, const GdnPiece& piece,
            Heads heads) const;

  const GdnKernels& kernels_;
  ThreadPool& pool_;
  int pass_rows_ = 0;
  HostMemory scratch_;
  std::vector<GdnPiece> pieces_;  // of the pass
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_GDN_H_
