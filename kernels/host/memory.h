// Large aligned memory of the host backend, on huge pages where the kernel
// grants them: page walks cost a virtual machine a tenth of a product.
#ifndef HOLDFAST_KERNELS_HOST_MEMORY_H_
#define HOLDFAST_KERNELS_HOST_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::kernels {

struct UnmapMemory {
  std::size_t bytes = 0;
  void operator()(std::byte* data) const;
};

// Zeroed memory, aligned to 64 bytes at least; owned, movable.
class HostMemory {
 public:
  HostMemory() = default;
  // `what` names the use in the error's message.
  static StatusOr<HostMemory> Make(std::size_t bytes, std::string_view what);

  std::byte* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, UnmapMemory> data_;
  std::size_t bytes_ = 0;
};

// Pieces of large allocations, for weights: most matrices of a small model are
// smaller than a huge page. Memory goes back when the last piece of its
// allocation does.
class HostArena {
 public:
  // Zeroed, aligned to 64 bytes.
  StatusOr<std::shared_ptr<std::byte>> Take(std::size_t bytes,
                                            std::string_view what);

 private:
  std::shared_ptr<HostMemory> chunk_;
  std::size_t used_ = 0;
};

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(HostMemory memory) : memory_(std::move(memory)) {
    data_ = memory_.data();
    bytes_ = memory_.bytes();
  }

 private:
  HostMemory memory_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_MEMORY_H_
