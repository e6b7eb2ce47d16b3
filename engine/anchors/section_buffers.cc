#include "engine/anchors/section_buffers.h"

#include <utility>

namespace holdfast::engine {

SectionBuffers::Buffer SectionBuffers::Take() {
  AlignedBytes memory;
  if (spare_.empty()) {
    memory = AllocateAligned(section_bytes_);
  } else {
    memory = std::move(spare_.back());
    spare_.pop_back();
  }
  return Buffer(memory.release(), Return(this));
}

}  // namespace holdfast::engine
