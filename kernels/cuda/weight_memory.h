// Device memory for weights. A driver gives out whole granules of 2 MiB, and
// the experts of a large model are tens of thousands of matrices of a little
// more than one or two: they share larger pieces.
#ifndef HOLDFAST_KERNELS_CUDA_WEIGHT_MEMORY_H_
#define HOLDFAST_KERNELS_CUDA_WEIGHT_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "kernels/cuda/device_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// A part of a piece, which lives until the last of its parts goes. Zeroed, at a
// multiple of 256.
struct WeightMemory {
  std::shared_ptr<const DeviceMemory> piece;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// Pieces grow with what was taken: an eighth of it, at most 256 MiB, so that a
// small model takes little. What would waste less alone has memory of its own.
// Not thread-safe.
class WeightPieces {
 public:
  // `what` names the use in the error's message.
  StatusOr<WeightMemory> Take(std::size_t bytes, std::string_view what);

  // Of the piece that is being filled.
  std::size_t unfilled_bytes() const {
    return piece_ == nullptr ? 0 : piece_->bytes() - used_;
  }

 private:
  std::shared_ptr<const DeviceMemory> piece_;
  std::size_t used_ = 0;
  std::size_t taken_ = 0;  // ever
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_WEIGHT_MEMORY_H_
