#include "engine/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/model_status.h"
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
  sha.Update("holdfast fingerprint 3").UpdateU64(files.size());
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
  const auto block_memory = backend.Allocate(layout.BlockBytes());
  if (!block_memory.ok()) return ToAbslStatus(block_memory.status());
  const auto section_memory = backend.Allocate(section_bytes);
  if (!section_memory.ok()) return ToAbslStatus(section_memory.status());
  auto* const block = static_cast<std::byte*>((*block_memory)->data());
  auto* const sections = static_cast<std::byte*>((*section_memory)->data());
  std::byte* const table[] = {block};
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
                                       .sections = sections,
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
  backend.ZeroBlockRows(model.kv_shape(), block, position);
  std::vector<std::byte> rows(layout.RowBytes() * kBlockTokens);
  std::vector<std::byte> state(section_bytes);
  backend.Read(block, rows.size(), rows.data());
  backend.Read(sections, state.size(), state.data());
  status = ToAbslStatus(backend.Synchronize());
  if (!status.ok()) return status;
  return sha.Update(rows.data(), rows.size())
      .Update(state.data(), state.size())
      .Finish();
}

}  // namespace holdfast::engine
