#include "cachesvc/store/testing/store_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/prompt_keys.h"
#include "fmt/format.h"
#include "shared/check.h"

namespace holdfast::cachesvc::testing {
namespace {

Deadline Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  return x ^ (x >> 29);
}

// A number that stands for everything below `position`, one for each.
std::vector<std::uint64_t> Histories(const std::vector<KeyId>& ids) {
  std::vector<std::uint64_t> sums = {1};
  for (const KeyId id : ids) sums.push_back(Mix(sums.back() * 31 + id));
  return sums;
}

void FillBytes(std::byte* to, std::size_t bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes; ++i) {
    to[i] = static_cast<std::byte>(Mix(seed + i) >> 8);
  }
}

// One row of one part of a view, as a block holds it.
template <typename Visit>
void ForEachRowPart(const CacheLayout& layout, std::uint64_t row_in_block,
                    const Visit& visit) {
  std::size_t offset = 0;
  std::uint64_t number = 0;
  for (const View& view : layout.views) {
    const std::size_t part_bytes = view.bytes_per_token / view.parts;
    for (std::uint32_t part = 0; part < view.parts; ++part) {
      visit(offset + row_in_block * part_bytes, part_bytes, ++number);
      offset += part_bytes * kBlockTokens;
    }
  }
}

std::uint64_t RowSeed(const std::vector<std::uint64_t>& histories,
                      std::uint64_t position, std::uint64_t number,
                      std::uint64_t version) {
  return Mix(histories[position + 1] + 1000 * number + version);
}

void FillBlock(const CacheLayout& layout,
               const std::vector<std::uint64_t>& histories, std::uint64_t first,
               std::uint64_t rows, std::uint64_t taint, std::uint64_t version,
               std::byte* block) {
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t position = first + row;
    ForEachRowPart(
        layout, row, [&](std::size_t at, std::size_t bytes, std::uint64_t n) {
          FillBytes(
              block + at, bytes,
              RowSeed(histories, position, n, position >= taint ? version : 0));
        });
  }
}

std::uint64_t StateSeed(const std::vector<std::uint64_t>& histories,
                        std::uint64_t position) {
  return Mix(histories[position] + 77);
}

void AddChunks(OwnedWrite& owned, std::uint64_t taint, std::uint64_t version) {
  const CacheLayout& layout = owned.layout;
  const auto histories = Histories(owned.ids);
  const std::uint64_t end = owned.ids.size();
  for (std::uint64_t first = 0; first < end; first += layout.grid_tokens) {
    const std::uint64_t last =
        std::min<std::uint64_t>(end, first + layout.grid_tokens);
    ChunkWrite chunk;
    chunk.provenance = last > taint || last - first < layout.grid_tokens
                           ? Provenance::kSession
                           : Provenance::kGrid;
    for (std::uint64_t at = first; at < last; at += kBlockTokens) {
      AlignedBuffer& block = owned.memory->emplace_back(layout.BlockBytes());
      FillBlock(layout, histories, at,
                std::min<std::uint64_t>(kBlockTokens, last - at), taint,
                version, block.data());
      chunk.blocks.push_back(block.data());
    }
    owned.write.chunks.push_back(std::move(chunk));
  }
}

void AddState(OwnedWrite& owned, std::uint64_t position, StateKind kind,
              std::uint64_t taint) {
  AlignedBuffer& state = owned.memory->emplace_back(StateBytes(owned.layout));
  const auto histories = Histories(owned.ids);
  const auto offsets = SectionOffsets(owned.layout);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    FillBytes(state.data() + offsets[i], owned.layout.sections[i].bytes,
              StateSeed(histories, position) + i);
  }
  owned.write.states.push_back(
      {position, kind,
       position > taint ? Provenance::kSession : Provenance::kGrid,
       state.span()});
}

std::unique_ptr<OwnedWrite> MakeWrite(FileKind kind, std::vector<KeyId> ids,
                                      const std::string& model,
                                      const CacheLayout& layout) {
  auto owned = std::make_unique<OwnedWrite>();
  owned->layout = layout;
  owned->ids = std::move(ids);
  owned->memory = std::make_shared<std::vector<AlignedBuffer>>();
  owned->write.kind = kind;
  owned->write.fingerprint = Fingerprint(model);
  owned->write.layout = owned->layout;
  owned->write.root = Root(owned->write.fingerprint);
  owned->write.key_ids = owned->ids;
  owned->write.keep_alive = owned->memory;
  return owned;
}

absl::Status Wrong(const std::string& what) {
  return absl::InternalError("WRONG BYTES: " + what);
}

// What a restore brought back, put together as an engine would.
struct Restored {
  std::vector<AlignedBuffer> blocks;
  AlignedBuffer state;
};

absl::StatusOr<Restored> ReadAll(Restore& restore, std::uint64_t position) {
  const CacheLayout& layout = restore.layout();
  Restored restored;
  restored.state = AlignedBuffer(StateBytes(layout));
  for (std::uint64_t at = 0; at < position; at += kBlockTokens) {
    restored.blocks.emplace_back(layout.BlockBytes());
  }
  for (std::size_t i = 0; i < restore.pieces().size(); ++i) {
    const RestorePiece& piece = restore.pieces()[i];
    const auto slot = std::make_shared<AlignedBuffer>(piece.bytes);
    if (auto s = restore.StartRead(i, slot->span(), slot); !s.ok()) return s;
    if (auto s = restore.FinishRead(i, Soon()); !s.ok()) return s;
    for (std::uint64_t at = 0; at < piece.use; ++at) {
      const std::byte byte = slot->data()[piece.skip + at];
      const std::uint64_t target = piece.target_offset + at;
      if (piece.what == RestorePiece::What::kState) {
        restored.state.data()[target] = byte;
        continue;
      }
      const std::uint64_t block =
          piece.chunk_position / kBlockTokens + target / layout.BlockBytes();
      restored.blocks[block].data()[target % layout.BlockBytes()] = byte;
    }
  }
  return restored;
}

}  // namespace

Sha256Digest Fingerprint(const std::string& name) {
  return Sha256().Update(name).Finish();
}

PrefixKey Root(const Sha256Digest& fingerprint) {
  return RootPrefixKey(fingerprint, "");
}

CacheLayout WorldLayout() {
  CacheLayout layout;
  layout.views = {{"rows.odd/name", 6, 2}, {"x", 3, 1}};
  layout.sections = {{"h_last", 100}, {"gdn.S", 5000}};
  layout.grid_tokens = 512;
  return layout;
}

std::vector<KeyId> PromptIds(std::uint64_t head, std::uint64_t seed,
                             std::uint64_t tokens) {
  std::vector<KeyId> ids;
  for (std::uint64_t i = 0; i < tokens; ++i) {
    ids.push_back(i < head ? 5 + i : 1'000'000 * (seed + 1) + i);
  }
  return ids;
}

std::unique_ptr<OwnedWrite> MakeAnchor(std::vector<KeyId> ids,
                                       const std::string& model,
                                       const CacheLayout& layout) {
  auto owned = MakeWrite(FileKind::kAnchor, std::move(ids), model, layout);
  owned->memory->reserve(owned->ids.size() / kBlockTokens + 2);
  AddChunks(*owned, kNoTaint, 0);
  AddState(*owned, owned->ids.size(), StateKind::kLine, kNoTaint);
  return owned;
}

std::unique_ptr<OwnedWrite> MakeSession(std::vector<KeyId> ids,
                                        const std::string& id,
                                        std::uint64_t taint,
                                        std::uint64_t version,
                                        const std::string& model,
                                        const CacheLayout& layout) {
  auto owned = MakeWrite(FileKind::kSession, std::move(ids), model, layout);
  owned->memory->reserve(2 * owned->ids.size() / kBlockTokens + 4);
  owned->write.taint = taint;
  owned->write.session_id = Sha256().Update(id).Finish();
  owned->write.session_key = id;
  owned->write.record = "record of " + id;
  AddChunks(*owned, taint, version);
  AddState(*owned, owned->ids.size(), StateKind::kEnd, taint);
  for (std::uint64_t line = layout.grid_tokens; line < owned->ids.size();
       line += layout.grid_tokens) {
    AddState(*owned, line, StateKind::kLine, taint);
  }
  return owned;
}

absl::Status ReadBack(ChunkStore& store, const OwnedWrite& written,
                      const FileKey& manifest, std::uint64_t position) {
  RestoreRequest request;
  request.fingerprint = written.write.fingerprint;
  request.manifest = manifest;
  request.position = position;
  request.key_ids = written.ids;
  auto restore = Restore::Open(store, request, Soon());
  if (!restore.ok()) return restore.status();
  const auto restored = ReadAll(**restore, position);
  if (!restored.ok()) return restored.status();
  absl::Status status;
  for (std::uint64_t row = 0; row < position && status.ok(); ++row) {
    const std::byte* want =
        written.write.chunks[row / written.layout.grid_tokens]
            .blocks[row % written.layout.grid_tokens / kBlockTokens];
    const std::byte* got = restored->blocks[row / kBlockTokens].data();
    ForEachRowPart(written.layout, row % kBlockTokens,
                   [&](std::size_t at, std::size_t bytes, std::uint64_t) {
                     if (std::memcmp(want + at, got + at, bytes) != 0) {
                       status = Wrong(fmt::format("row {}", row));
                     }
                   });
  }
  if (!status.ok()) return status;
  for (const StateWrite& state : written.write.states) {
    if (state.position != position) continue;
    const std::span<const std::byte> got = restored->state.span();
    if (!std::equal(state.bytes.begin(), state.bytes.end(), got.begin(),
                    got.end())) {
      return Wrong(fmt::format("state at {}", position));
    }
    return absl::OkStatus();
  }
  return Wrong("no such state was written");
}

std::vector<Candidate> Candidates(const ChunkStore& store,
                                  const OwnedWrite& prompt) {
  const PromptKeys keys(prompt.write.root, prompt.ids);
  LookupRequest request;
  request.fingerprint = prompt.write.fingerprint;
  request.root = prompt.write.root;
  request.block_keys = keys.block_keys();
  std::vector<Candidate> found = store.Lookup(request);
  std::erase_if(found, [&](const Candidate& candidate) {
    const std::uint64_t first = candidate.position - candidate.tail.size();
    return candidate.position > prompt.ids.size() ||
           !std::equal(candidate.tail.begin(), candidate.tail.end(),
                       prompt.ids.begin() + static_cast<std::ptrdiff_t>(first));
  });
  return found;
}

std::optional<Candidate> Deepest(const ChunkStore& store,
                                 const OwnedWrite& prompt) {
  const auto found = Candidates(store, prompt);
  if (found.empty()) return std::nullopt;
  return found.front();
}

StoreWorld::StoreWorld() : StoreWorld(nullptr) {}

StoreWorld::StoreWorld(Index* own)
    : pool([] {
        IoPoolOptions pool_options;
        pool_options.kind = IoPoolKind::kThreads;
        pool_options.depth = 1;  // one order of calls
        return *MakeIoPool(pool_options);
      }()),
      index(own == nullptr ? &fake_index : own) {
  options.folder = "/cache";
  options.limits.free_floor_bytes = 0;
  HF_CHECK(fs.MakeDirectory(options.folder).ok());
  faults.Clear();
}

absl::Status StoreWorld::Open() {
  auto opened = ChunkStore::Open({fs, *pool, *index, clock}, options);
  if (!opened.ok()) return opened.status();
  store = *std::move(opened);
  store->SetAttached(Fingerprint("model"));
  return absl::OkStatus();
}

absl::Status StoreWorld::Reboot(std::uint32_t seed) {
  store.reset();
  fs.Reboot(seed);
  fake_index.Reboot(seed);
  faults.Clear();
  return Open();
}

std::string StoreWorld::Unaccounted() const {
  const StoreUse use = store->Use();
  const std::uint64_t known = use.disk_bytes + use.spill_bytes +
                              use.condemned_bytes + use.unadopted_bytes +
                              use.unknown_bytes + use.ledger_bytes;
  const std::uint64_t there = fs.TotalBytes();
  if (known == there) return "";
  return fmt::format("{} bytes are on the disk, {} are accounted for", there,
                     known);
}

}  // namespace holdfast::cachesvc::testing
