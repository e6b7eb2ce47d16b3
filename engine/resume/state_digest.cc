#include "engine/resume/state_digest.h"

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "engine/model_status.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {

absl::StatusOr<Sha256Digest> StateDigest(const model::Model& model,
                                         kernels::Backend& backend,
                                         const Sequence& sequence,
                                         DigestSections sections) {
  const CacheLayout& layout = model.layout();
  const std::size_t bytes = layout.RowBytes() * kBlockTokens;
  const int rows = sequence.rows();
  Sha256 sha;
  sha.UpdateU64(static_cast<std::uint64_t>(rows));
  std::vector<std::byte> host;
  const auto update = [&](const void* from, std::size_t size) {
    host.resize(size);
    backend.Read(from, size, host.data());
    const absl::Status status = ToAbslStatus(backend.Synchronize());
    if (status.ok()) sha.Update(host.data(), size);
    return status;
  };
  for (int i = 0; i < rows / kBlockTokens; ++i) {
    if (auto s = update(sequence.table.pointer(i), bytes); !s.ok()) return s;
  }
  if (const int rest = rows % kBlockTokens; rest > 0) {
    const auto copy = backend.Allocate(layout.BlockBytes());
    if (!copy.ok()) return ToAbslStatus(copy.status());
    auto* const block = static_cast<std::byte*>((*copy)->data());
    backend.CopyBlockRows(model.kv_shape(),
                          sequence.table.pointer(rows / kBlockTokens), rest,
                          block);
    backend.ZeroBlockRows(model.kv_shape(), block, rest);
    if (auto s = update(block, bytes); !s.ok()) return s;
  }
  const auto places = model::ComputeSectionOffsets(layout);
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    const Section& section = layout.sections[i];
    if (sections == DigestSections::kRecurrent && section.name == kHLast) {
      continue;
    }
    const absl::Status status =
        update(sequence.sections.get() + places.offsets[i], section.bytes);
    if (!status.ok()) return status;
  }
  return sha.Finish();
}

Sha256Digest LogitsDigest(std::span<const float> logits) {
  Sha256 sha;
  return sha.Update(logits.data(), logits.size_bytes()).Finish();
}

}  // namespace holdfast::engine
