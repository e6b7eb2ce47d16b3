// Matrix products over packed panels: how rows, panels and K blocks are spread
// over threads and caches. The arithmetic is in the kernels.
#ifndef HOLDFAST_KERNELS_HOST_PRODUCTS_H_
#define HOLDFAST_KERNELS_HOST_PRODUCTS_H_

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
  HostProducts(const ProductKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  // Scratch for the largest product.
  Status Prepare(const Limits& limits);

  void MatMul(const PackedMatrix& w, const float* x, int rows,
              const float* bias, float* y);

  // Row `id` of the matrix as floats, on the calling thread.
  void EmbedRow(const PackedMatrix& table, std::int32_t id, float* out) const;

 private:
  const ProductKernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_PRODUCTS_H_
