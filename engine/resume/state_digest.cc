#include "engine/resume/state_digest.h"

#include "absl/status/status.h"
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
  for (int i = 0; i < rows / kBlockTokens; ++i) {
    sha.Update(sequence.table.pointer(i), bytes);
  }
  if (const int rest = rows % kBlockTokens; rest > 0) {
    const AlignedBytes copy = AllocateAligned(layout.BlockBytes());
    if (copy == nullptr) {
      return absl::ResourceExhaustedError("no memory for a block's digest");
    }
    backend.CopyBlockRows(model.kv_shape(),
                          sequence.table.pointer(rows / kBlockTokens), rest,
                          copy.get());
    backend.ZeroBlockRows(model.kv_shape(), copy.get(), rest);
    sha.Update(copy.get(), bytes);
  }
  const auto places = model::ComputeSectionOffsets(layout);
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    const Section& section = layout.sections[i];
    if (sections == DigestSections::kRecurrent && section.name == kHLast) {
      continue;
    }
    sha.Update(sequence.sections.get() + places.offsets[i], section.bytes);
  }
  return sha.Finish();
}

Sha256Digest LogitsDigest(std::span<const float> logits) {
  Sha256 sha;
  return sha.Update(logits.data(), logits.size_bytes()).Finish();
}

}  // namespace holdfast::engine
