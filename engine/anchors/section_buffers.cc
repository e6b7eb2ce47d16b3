#include "engine/anchors/section_buffers.h"

#include <algorithm>
#include <utility>

#include "engine/model_status.h"

namespace holdfast::engine {

absl::Status SectionBuffers::AddOne() {
  auto memory = backend_.Allocate(std::max<std::size_t>(1, section_bytes_));
  if (!memory.ok()) return ToAbslStatus(memory.status());
  spare_.push_back(static_cast<std::byte*>((*memory)->data()));
  memory_.push_back(*std::move(memory));
  return absl::OkStatus();
}

absl::Status SectionBuffers::Reserve(int count) {
  while (static_cast<int>(memory_.size()) < count) {
    if (auto status = AddOne(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

SectionBuffers::Buffer SectionBuffers::Take() {
  if (spare_.empty() && !AddOne().ok()) return Buffer(nullptr, Return(this));
  std::byte* const buffer = spare_.back();
  spare_.pop_back();
  return Buffer(buffer, Return(this));
}

}  // namespace holdfast::engine
