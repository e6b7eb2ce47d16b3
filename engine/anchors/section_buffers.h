// Memory for copies of a sequence's sections, used again and again: mapping
// fresh memory would take longer than filling it.
#ifndef HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_
#define HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// The backend's memory. Never gives any back before it ends: as much as was in
// use at once, or was reserved. One thread; outlives every buffer it gave.
class SectionBuffers {
 public:
  class Return {
   public:
    explicit Return(SectionBuffers* owner = nullptr) : owner_(owner) {}
    void operator()(std::byte* buffer) const {
      owner_->spare_.push_back(buffer);
    }

   private:
    SectionBuffers* owner_;
  };
  using Buffer = std::unique_ptr<std::byte[], Return>;

  // `backend` outlives the buffers.
  SectionBuffers(kernels::Backend& backend, std::size_t section_bytes)
      : backend_(backend), section_bytes_(section_bytes) {}
  SectionBuffers(const SectionBuffers&) = delete;
  SectionBuffers& operator=(const SectionBuffers&) = delete;

  std::size_t section_bytes() const { return section_bytes_; }
  // Memory for `count` buffers in all, taken now.
  absl::Status Reserve(int count);
  // With whatever it held before; null when the machine has no memory.
  Buffer Take();
  // Taken and not given back.
  int in_use() const {
    return static_cast<int>(memory_.size() - spare_.size());
  }
  // In order with the backend's operations.
  void Copy(const std::byte* from, std::byte* to) {
    backend_.Copy(from, section_bytes_, to);
  }

 private:
  absl::Status AddOne();

  kernels::Backend& backend_;
  const std::size_t section_bytes_;
  std::vector<std::unique_ptr<kernels::Buffer>> memory_;
  std::vector<std::byte*> spare_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_
