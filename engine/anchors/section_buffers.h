// Memory for copies of a sequence's sections, used again and again: mapping
// fresh memory would take longer than filling it.
#ifndef HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_
#define HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/pool/block_table.h"

namespace holdfast::engine {

// Never gives memory back to the machine before it ends: as much as was in use
// at once. One thread; outlives every buffer it gave.
class SectionBuffers {
 public:
  class Return {
   public:
    explicit Return(SectionBuffers* owner = nullptr) : owner_(owner) {}
    void operator()(std::byte* buffer) const {
      owner_->spare_.emplace_back(buffer);
    }

   private:
    SectionBuffers* owner_;
  };
  using Buffer = std::unique_ptr<std::byte[], Return>;

  explicit SectionBuffers(std::size_t section_bytes)
      : section_bytes_(section_bytes) {}
  SectionBuffers(const SectionBuffers&) = delete;
  SectionBuffers& operator=(const SectionBuffers&) = delete;

  std::size_t section_bytes() const { return section_bytes_; }
  // With whatever it held before; null when the machine has no memory.
  Buffer Take();

 private:
  const std::size_t section_bytes_;
  std::vector<AlignedBytes> spare_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_ANCHORS_SECTION_BUFFERS_H_
