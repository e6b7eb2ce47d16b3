#include "engine/model/testing/test_sequence.h"

#include <algorithm>
#include <cstring>

namespace holdfast::model::testing {

TestSequence::TestSequence(const Model& model, int tokens, std::byte fill)
    : model_(model) {
  const std::size_t block_bytes = model.layout().BlockBytes();
  const std::size_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kBlockAlignment, blocks * block_bytes)));
  std::memset(memory_.get(), static_cast<int>(fill), blocks * block_bytes);
  for (std::size_t i = 0; i < blocks; ++i) {
    blocks_.push_back(memory_.get() + i * block_bytes);
  }
  sections_.assign(ComputeSectionOffsets(model.layout()).bytes, fill);
}

SequenceRows TestSequence::Next(std::span<const std::int32_t> ids) {
  SequenceRows rows;
  rows.ids = ids;
  rows.position = position_;
  rows.blocks = blocks_.data();
  rows.sections = sections_.data();
  position_ += static_cast<int>(ids.size());
  return rows;
}

std::string TestSequence::RowBytes(int tokens) const {
  const int whole = tokens / kGranuleTokens * kGranuleTokens;
  std::string bytes;
  for (int first = 0; first < whole; first += kBlockTokens) {
    const std::byte* at = blocks_[first / kBlockTokens];
    const int rows = std::min(kBlockTokens, whole - first);
    for (const View& view : model_.layout().views) {
      const std::size_t token = view.bytes_per_token / view.parts;
      for (std::uint32_t part = 0; part < view.parts; ++part) {
        bytes.append(reinterpret_cast<const char*>(at), rows * token);
        at += kBlockTokens * token;
      }
    }
  }
  return bytes;
}

std::string TestSequence::SectionBytes() const {
  const CacheLayout& layout = model_.layout();
  const SectionOffsets places = ComputeSectionOffsets(layout);
  std::string bytes;
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    bytes.append(
        reinterpret_cast<const char*>(sections_.data()) + places.offsets[i],
        layout.sections[i].bytes);
  }
  return bytes;
}

const std::byte* TestSequence::SectionData(std::string_view name) const {
  const CacheLayout& layout = model_.layout();
  const SectionOffsets places = ComputeSectionOffsets(layout);
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    if (layout.sections[i].name == name) {
      return sections_.data() + places.offsets[i];
    }
  }
  return nullptr;
}

}  // namespace holdfast::model::testing
