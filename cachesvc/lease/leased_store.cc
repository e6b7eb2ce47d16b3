#include "cachesvc/lease/leased_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "shared/aligned_buffer.h"
#include "shared/cache_layout.h"

namespace holdfast::cachesvc {
namespace {

std::uint64_t BlocksFor(std::uint64_t rows) {
  return (rows + kBlockTokens - 1) / kBlockTokens;
}

absl::Status Bad(std::string what) {
  return absl::InvalidArgumentError("store: " + std::move(what));
}

}  // namespace

absl::Status CheckLeased(const LeasedStore& store) {
  const AnnouncedLayout& layout = store.layout;
  if (store.lease_slot >= layout.lease_slots || store.lease_generation == 0) {
    return Bad(
        fmt::format("lease {} of {}", store.lease_slot, layout.lease_slots));
  }
  const auto inside = [&](std::uint32_t block) {
    return block < layout.block_count;
  };
  const auto on_device = [&](std::uint32_t block) {
    return store.device != nullptr && block >= layout.block_count &&
           block - layout.block_count < layout.device_block_count;
  };
  // In one memory or in the other.
  if (store.blocks.size() != BlocksFor(store.key_ids.size()) ||
      !(std::all_of(store.blocks.begin(), store.blocks.end(), inside) ||
        std::all_of(store.blocks.begin(), store.blocks.end(), on_device))) {
    return Bad(fmt::format("{} blocks for {} rows", store.blocks.size(),
                           store.key_ids.size()));
  }
  const std::uint64_t bytes = StateBytes(layout.layout);
  const std::uint64_t blocks =
      (bytes + layout.block_bytes - 1) / layout.block_bytes;
  for (const LeasedState& state : store.states) {
    if (state.blocks.size() == blocks &&
        std::all_of(state.blocks.begin(), state.blocks.end(), inside)) {
      continue;
    }
    return Bad(fmt::format("the state at {} in {} blocks", state.position,
                           state.blocks.size()));
  }
  return absl::OkStatus();
}

bool RowsOnDevice(const LeasedStore& store) {
  return !store.blocks.empty() &&
         store.blocks.front() >= store.layout.block_count;
}

absl::StatusOr<DevicePool::Copies> CopyDeviceRows(const LeasedStore& store,
                                                  std::size_t first_block,
                                                  std::size_t blocks) {
  std::vector<std::uint32_t> of_device;
  for (std::size_t i = first_block; i < first_block + blocks; ++i) {
    of_device.push_back(
        static_cast<std::uint32_t>(store.blocks[i] - store.layout.block_count));
  }
  return store.device->Copy(of_device, store.deadline);
}

Provenance ProvenanceAt(const LeasedStore& store, std::uint64_t position) {
  return position > store.taint ? Provenance::kSession : Provenance::kGrid;
}

bool StillLeased(const LeasedStore& store) {
  const std::byte* word = store.pool->data() + store.layout.lease_table_offset +
                          store.lease_slot * sizeof(std::uint64_t);
  // What was read of the blocks was read before the word: the load alone would
  // not keep a weakly ordered CPU from that.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(word),
                         __ATOMIC_SEQ_CST) == store.lease_generation;
}

void CopyState(const LeasedStore& store, const LeasedState& state,
               std::span<std::byte> to) {
  const std::uint64_t block_bytes = store.layout.block_bytes;
  for (std::size_t i = 0; i < state.blocks.size(); ++i) {
    const std::uint64_t at = i * block_bytes;
    std::memcpy(to.data() + at,
                store.pool->data() + state.blocks[i] * block_bytes,
                std::min<std::uint64_t>(block_bytes, to.size() - at));
  }
}

absl::StatusOr<std::unique_ptr<LeasedWrite>> LeasedWrite::Make(
    LeasedStore store) {
  if (auto s = CheckLeased(store); !s.ok()) return s;
  std::unique_ptr<LeasedWrite> made(new LeasedWrite(std::move(store)));
  if (auto s = made->CopyStates(); !s.ok()) return s;
  made->PointAtRows();
  return made;
}

absl::Status LeasedWrite::CopyStates() {
  memory_->pool = store_.pool;
  for (const LeasedState& state : store_.states) {
    AlignedBuffer& image =
        memory_->states.emplace_back(StateBytes(store_.layout.layout));
    CopyState(store_, state, image.span());
    write_.states.push_back({.position = state.position,
                             .kind = state.kind,
                             .provenance = ProvenanceAt(store_, state.position),
                             .bytes = {}});
  }
  // Not before: a vector that grows moves them.
  for (std::size_t i = 0; i < write_.states.size(); ++i) {
    write_.states[i].bytes = memory_->states[i].span();
  }
  if (StillLeased(store_)) return absl::OkStatus();
  return absl::AbortedError("the lease ended before its states were copied");
}

void LeasedWrite::PointAtRows() {
  const CacheLayout& layout = store_.layout.layout;
  write_.kind = store_.kind;
  write_.fingerprint = store_.fingerprint;
  write_.layout = layout;
  write_.root = store_.root;
  write_.key_ids = store_.key_ids;
  const std::uint64_t grid = layout.grid_tokens;
  for (std::uint64_t first = 0; first < store_.key_ids.size(); first += grid) {
    const std::uint64_t end =
        std::min<std::uint64_t>(first + grid, store_.key_ids.size());
    ChunkWrite chunk;
    // A chunk that is not whole is the conversation's own.
    chunk.provenance =
        end - first == grid ? ProvenanceAt(store_, end) : Provenance::kSession;
    if (RowsOnDevice(store_)) {
      chunk.blocks_elsewhere =
          static_cast<std::uint32_t>(BlocksFor(end) - first / kBlockTokens);
      write_.chunks.push_back(std::move(chunk));
      continue;
    }
    for (std::uint64_t b = first / kBlockTokens; b < BlocksFor(end); ++b) {
      chunk.blocks.push_back(store_.pool->data() +
                             store_.blocks[b] * store_.layout.block_bytes);
    }
    write_.chunks.push_back(std::move(chunk));
  }
  write_.session_id = SessionId(store_.root, store_.session_key);
  write_.session_key = store_.session_key;
  write_.record = store_.record;
  write_.taint = store_.taint < store_.key_ids.size() ? store_.taint : kNoTaint;
  write_.keep_alive = memory_;
  if (RowsOnDevice(store_)) {
    write_.fetch = [this, grid](std::size_t i) { return Fetch(i, grid); };
  }
  write_.still_leased = [this] { return StillLeased(store_); };
  write_.deadline = store_.deadline;
}

absl::StatusOr<FetchedRows> LeasedWrite::Fetch(std::size_t chunk,
                                               std::uint64_t grid) const {
  const std::size_t first = chunk * (grid / kBlockTokens);
  auto copies =
      CopyDeviceRows(store_, first, write_.chunks[chunk].blocks_elsewhere);
  if (!copies.ok()) return copies.status();
  return FetchedRows{std::move(copies->blocks), std::move(copies->keep_alive)};
}

Sha256Digest SessionId(const PrefixKey& root, const std::string& session_key) {
  return Sha256()
      .Update("holdfast session 1")
      .Update(root)
      .UpdateField(session_key)
      .Finish();
}

}  // namespace holdfast::cachesvc
