// A gated delta net layer: how rows, heads and stripes of the state are spread
// over threads. The arithmetic is in the kernels; no split here can change a
// bit.
#ifndef HOLDFAST_KERNELS_HOST_GDN_H_
#define HOLDFAST_KERNELS_HOST_GDN_H_

#include <span>

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

class HostGdn {
 public:
  HostGdn(const GdnKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  // Scratch for the largest call; refuses shapes that no kernel computes.
  Status Prepare(const Limits& limits);

  void Run(const GdnCall& call);

 private:
  // Where a launch's convolved rows lie: each head's together, so that one
  // head's recurrence reads a run of memory.
  struct Rows {
    int count = 0;
    float* q = nullptr;  // [key head][row][key_dim]
    float* k = nullptr;
    float* v = nullptr;     // [value head][row][value_dim]; outputs replace it
    float* beta = nullptr;  // [value head][row]
    float* decay = nullptr;
  };

  Rows Carve(const GdnCall& call) const;
  void Inputs(const GdnCall& call, const Rows& rows);
  void ConvHead(const GdnCall& call, const Rows& rows, const RowSpan& span,
                int head);
  void Recur(const GdnCall& call, const Rows& rows);
  void Norm(const GdnCall& call, const Rows& rows);

  const GdnKernels& kernels_;
  ThreadPool& pool_;
  HostMemory scratch_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_GDN_H_
