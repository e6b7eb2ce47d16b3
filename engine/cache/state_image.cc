#include "engine/cache/state_image.h"

#include <algorithm>
#include <cstring>

#include "engine/model/model.h"
#include "engine/model_status.h"
#include "shared/aligned_buffer.h"
#include "shared/check.h"

namespace holdfast::engine {

std::uint64_t StateImageBytes(const CacheLayout& layout) {
  std::uint64_t sum = 0;
  for (const Section& section : layout.sections) sum += PagesUp(section.bytes);
  return sum;
}

absl::Status WriteStateImage(const CacheLayout& layout,
                             kernels::Backend& backend,
                             const std::byte* sections,
                             std::span<std::byte> image) {
  HF_CHECK(image.size() == StateImageBytes(layout));
  const auto places = model::ComputeSectionOffsets(layout);
  std::ranges::fill(image, std::byte{0});
  std::size_t at = 0;
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    const std::size_t bytes = layout.sections[i].bytes;
    backend.Read(sections + places.offsets[i], bytes, image.data() + at);
    at += PagesUp(bytes);
  }
  return ToAbslStatus(backend.Synchronize());
}

absl::Status ReadStateImage(const CacheLayout& layout,
                            std::span<const std::byte> image,
                            kernels::Backend& backend, std::byte* sections) {
  HF_CHECK(image.size() == StateImageBytes(layout));
  const auto places = model::ComputeSectionOffsets(layout);
  std::vector<std::byte> host(places.bytes);  // zeros between the sections
  std::size_t at = 0;
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    const std::size_t bytes = layout.sections[i].bytes;
    std::memcpy(host.data() + places.offsets[i], image.data() + at, bytes);
    at += PagesUp(bytes);
  }
  return ToAbslStatus(backend.Write(host.data(), host.size(), sections));
}

std::optional<std::vector<BlockId>> StageImage(std::span<const std::byte> image,
                                               BlockPool& pool, bool evict) {
  std::vector<BlockId> blocks;
  for (std::size_t at = 0; at < image.size(); at += pool.block_bytes()) {
    const BlockId block = evict ? pool.Allocate() : pool.AllocateFree();
    if (block == kNoBlock) {
      for (const BlockId taken : blocks) {
        pool.Unref(taken, BlockPool::Touch::kNo);
      }
      return std::nullopt;
    }
    const std::size_t bytes = std::min(pool.block_bytes(), image.size() - at);
    std::memcpy(pool.data(block), image.data() + at, bytes);
    std::memset(pool.data(block) + bytes, 0, pool.block_bytes() - bytes);
    blocks.push_back(block);
  }
  return blocks;
}

std::optional<std::vector<BlockId>> StageState(const CacheLayout& layout,
                                               kernels::Backend& backend,
                                               const std::byte* sections,
                                               BlockPool& pool, bool evict) {
  AlignedBuffer image(StateImageBytes(layout));
  if (!WriteStateImage(layout, backend, sections, image.span()).ok()) {
    return std::nullopt;
  }
  return StageImage(image.span(), pool, evict);
}

}  // namespace holdfast::engine
