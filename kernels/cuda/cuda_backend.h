// The CUDA backend: exactness level `grid`. One stream; nothing is allocated
// after Prepare, other than by the calls that say so in kernels/backend.h and
// the first MoeExperts of a layer (a table of its matrices).
//
// What a call is refused for, and what goes wrong on the device, is reported by
// the next Synchronize; after an error of the device itself (an illegal
// address, say) every later one fails too: the process must be started anew.
#ifndef HOLDFAST_KERNELS_CUDA_CUDA_BACKEND_H_
#define HOLDFAST_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/status.h"
#include "shared/cache_layout.h"

namespace holdfast::kernels {

struct CudaOptions {
  int device = 0;
};

// One line of the memory table.
struct MemoryUse {
  std::string what;
  std::size_t bytes = 0;
};

class CudaBackend : public Backend {
 public:
  // The two content sums (shared/content_sum) of each view over `blocks`.
  // Waits for the result.
  struct Sums {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
  };
  virtual StatusOr<std::vector<Sums>> ViewSums(
      const CacheLayout& layout, std::span<const std::byte* const> blocks) = 0;

  // Device memory that the backend took for itself so far, and what it gave out
  // as buffers; matrices are left out.
  virtual std::vector<MemoryUse> memory() const = 0;
};

// An error when the machine has no usable device; the message says why.
StatusOr<std::unique_ptr<CudaBackend>> MakeCudaBackend(
    const CudaOptions& options);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_CUDA_CUDA_BACKEND_H_
