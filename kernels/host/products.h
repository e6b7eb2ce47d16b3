// Matrix products over packed panels: how rows, panels and K blocks are spread
// over threads and caches. The arithmetic is in the kernels; no split here can
// change a bit, because a sum passes from one K block to the next in memory.
#ifndef HOLDFAST_KERNELS_HOST_PRODUCTS_H_
#define HOLDFAST_KERNELS_HOST_PRODUCTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/memory.h"
#include "kernels/host/packed_matrix.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels {

class HostProducts {
 public:
  // kGrid: a single row is multiplied in two halves, whose sums are added.
  HostProducts(const ProductKernels& kernels, ThreadPool& pool,
               Exactness exactness)
      : kernels_(kernels), pool_(pool), exactness_(exactness) {}

  // Scratch for the largest product.
  Status Prepare(const Limits& limits);

  void MatMul(const PackedMatrix& w, const float* x, int rows,
              const float* bias, float* y);

  // Row `id` of the matrix as floats, on the calling thread.
  void EmbedRow(const PackedMatrix& table, std::int32_t id, float* out) const;

 private:
  // Rows of one pass over the weights, as they were packed.
  struct Pass {
    const PackedMatrix* w = nullptr;
    const float* bias = nullptr;
    float* y = nullptr;  // of the pass's first row
    int rows = 0;
  };

  // Before sums are written to columns of y that another core may have read:
  // what a thread does after that would wait until their lines are its own.
  void FetchOutput(std::int64_t column, int panels, int rows,
                   std::int64_t stride, float* y) const;
  void FewRows(const PackedMatrix& w, const float* x, int rows,
               const float* bias, float* y);
  // One row as two, of which each has half of the numbers and zeros.
  void RowInHalves(const PackedMatrix& w, const float* x, const float* bias,
                   float* y);
  void PackRows(const float* x, int rows, std::int64_t cols);
  void MultiplyPass(const Pass& pass);
  // Rows [row, row + rows) against panels [first, end).
  void MultiplyPanels(const Pass& pass, int row, int rows, int first, int end,
                      int thread);
  void MultiplyPanel(const Pass& pass, int row, int rows, int index,
                     std::int64_t k_start, int thread);

  const ProductKernels& kernels_;
  ThreadPool& pool_;
  const Exactness exactness_;
  int pass_rows_ = 0;
  HostMemory packed_;  // [K block][row tile][k][row]
  HostMemory thread_scratch_;
  HostMemory halves_;  // kGrid: two rows of input, then two of output
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_PRODUCTS_H_
