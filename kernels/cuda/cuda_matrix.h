// A weight matrix in device memory (weights.h says how).
#ifndef HOLDFAST_KERNELS_CUDA_CUDA_MATRIX_H_
#define HOLDFAST_KERNELS_CUDA_CUDA_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/weight_memory.h"
#include "kernels/cuda/weights.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

class CudaMatrix final : public Matrix {
 public:
  struct Part {
    WeightView view;
    std::int64_t first_column = 0;  // of the product's output
  };

  // Packs on `pool`'s threads, through `staging`, into memory of `pieces`. The
  // weights are there when this returns.
  static StatusOr<std::unique_ptr<CudaMatrix>> Pack(
      std::span<const WeightTensor> tensors, const PinnedMemory& staging,
      ThreadPool& pool, WeightPieces& pieces);

  const std::vector<Part>& parts() const { return parts_; }
  // Never that of another matrix, as an address may be.
  std::uint64_t id() const { return id_; }

 private:
  static std::uint64_t NextId();

  const std::uint64_t id_ = NextId();
  std::vector<Part> parts_;
  WeightMemory memory_;
};

// The numbers of a vector, widened; F32, F16 and BF16.
StatusOr<std::vector<float>> WidenVector(const WeightTensor& tensor);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_CUDA_MATRIX_H_
