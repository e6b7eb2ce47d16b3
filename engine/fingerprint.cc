#include "engine/fingerprint.h"

#include <algorithm>
#include <span>

#include "engine/model_status.h"
#include "engine/pool/block_table.h"
#include "kernels/self_test.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// A whole granule, a partial one, and rows one at a time.
constexpr int kPrefillRows = 21;
constexpr int kDecodeRows = 3;

}  // namespace

absl::StatusOr<Sha256Digest> ComputeFingerprint(
    const std::vector<std::string>& files, const model::Model& model,
    const kernels::BackendInfo& backend, const SelfTests& self_tests) {
  Sha256 sha;
  sha.Update("holdfast fingerprint 2").UpdateU64(files.size());
  for (const std::string& file : files) {
    const auto digest = Sha256OfFile(file);
    if (!digest.ok()) return digest.status();
    sha.Update(*digest);
  }
  sha.UpdateField(model.info().architecture)
      .UpdateField(model.info().config_digest_input);
  sha.UpdateField(backend.name)
      .UpdateU64(static_cast<std::uint64_t>(backend.exactness))
      .UpdateU64(static_cast<std::uint64_t>(backend.arithmetic_revision));
  // Absent where the revision says it all: those fingerprints stay.
  if (!backend.choices.empty()) sha.UpdateField(backend.choices);
  const CacheLayout& layout = model.layout();
  sha.UpdateU64(kBlockTokens).UpdateU64(layout.grid_tokens);
  sha.UpdateU64(static_cast<std::uint64_t>(model.kv_shape().state_type));
  sha.UpdateU64(layout.views.size());
  for (const View& view : layout.views) {
    sha.UpdateField(view.name)
        .UpdateU64(view.bytes_per_token)
        .UpdateU64(view.parts);
  }
  sha.UpdateU64(layout.sections.size());
  for (const Section& section : layout.sections) {
    sha.UpdateField(section.name).UpdateU64(section.bytes);
  }
  return sha.Update(self_tests.kernels).Update(self_tests.model).Finish();
}

absl::StatusOr<Sha256Digest> SelfTestKernels(kernels::Backend& backend) {
  Sha256 sha;
  const auto status =
      kernels::RunSelfTest(backend, [&sha](std::span<const std::byte> results) {
        sha.Update(results.data(), results.size());
      });
  if (!status.ok()) return ToAbslStatus(status);
  return sha.Finish();
}

absl::StatusOr<Sha256Digest> SelfTestModel(model::Model& model,
                                           kernels::Backend& backend) {
  const CacheLayout& layout = model.layout();
  const std::size_t section_bytes = model::ComputeSectionOffsets(layout).bytes;
  const AlignedBytes block = AllocateAligned(layout.BlockBytes());
  const AlignedBytes sections = AllocateAligned(section_bytes);
  if (block == nullptr || sections == nullptr) {
    return absl::ResourceExhaustedError("no memory for the self-test");
  }
  std::fill_n(sections.get(), section_bytes, std::byte{0});
  std::byte* const table[] = {block.get()};
  std::vector<float> logits(model.info().vocab_size);
  Sha256 sha;
  int position = 0;
  const auto forward = [&](int rows) {
    std::vector<std::int32_t> ids(rows);
    for (int i = 0; i < rows; ++i) {
      ids[i] = (position + i) * 97 % model.info().vocab_size;
    }
    const model::SequenceRows sequence{.ids = ids,
                                       .position = position,
                                       .blocks = table,
                                       .sections = sections.get(),
                                       .last_logits = logits,
                                       .all_logits = {}};
    position += rows;
    const auto status = model.Forward({&sequence, 1});
    sha.Update(logits.data(), logits.size() * sizeof(float));
    return ToAbslStatus(status);
  };
  absl::Status status = forward(kPrefillRows);
  for (int i = 0; status.ok() && i < kDecodeRows; ++i) status = forward(1);
  if (!status.ok()) return status;
  backend.ZeroBlockRows(model.kv_shape(), block.get(), position);
  sha.Update(block.get(), layout.RowBytes() * kBlockTokens);
  return sha.Update(sections.get(), section_bytes).Finish();
}

}  // namespace holdfast::engine
