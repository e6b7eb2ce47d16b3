// A sequence's sections as files have them: each from a page boundary on.
#ifndef HOLDFAST_ENGINE_CACHE_STATE_IMAGE_H_
#define HOLDFAST_ENGINE_CACHE_STATE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/pool/block_pool.h"
#include "kernels/backend.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {

std::uint64_t StateImageBytes(const CacheLayout& layout);

// `image` has StateImageBytes() bytes, `sections` is as a model takes
// them (model::ComputeSectionOffsets), in the backend's memory.
absl::Status WriteStateImage(const CacheLayout& layout,
                             kernels::Backend& backend,
                             const std::byte* sections,
                             std::span<std::byte> image);
absl::Status ReadStateImage(const CacheLayout& layout,
                            std::span<const std::byte> image,
                            kernels::Backend& backend, std::byte* sections);

// Puts the image into blocks of the pool, whose memory is host memory, one
// after another; the last one is filled up with zeros. Each has one reference,
// the caller's. Takes free blocks alone when `evict` is false. Nothing when
// there are too few.
std::optional<std::vector<BlockId>> StageImage(std::span<const std::byte> image,
                                               BlockPool& pool, bool evict);
// The same of the image of `sections`. Nothing, too, when they cannot be read.
std::optional<std::vector<BlockId>> StageState(const CacheLayout& layout,
                                               kernels::Backend& backend,
                                               const std::byte* sections,
                                               BlockPool& pool, bool evict);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_STATE_IMAGE_H_
