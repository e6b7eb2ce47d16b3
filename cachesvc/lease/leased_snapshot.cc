#include "cachesvc/lease/leased_snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast::cachesvc {

namespace {

absl::Status CopyRows(const LeasedStore& leased, StateStore::Filling& filling,
                      std::uint64_t& bytes) {
  const bool on_device = RowsOnDevice(leased);
  const std::size_t blocks = leased.blocks.size();
  const std::size_t at_once = on_device ? leased.device->piece_blocks() : 1;
  for (std::size_t first = 0; first < blocks; first += at_once) {
    const std::size_t n = std::min(at_once, blocks - first);
    DevicePool::Copies copies;
    if (on_device) {
      auto copied = CopyDeviceRows(leased, first, n);
      if (!copied.ok()) return copied.status();
      copies = *std::move(copied);
    } else {
      copies.blocks.push_back(leased.pool->data() +
                              leased.blocks[first] * leased.layout.block_bytes);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto to = filling.block(first + i);
      std::memcpy(to.data(), copies.blocks[i], to.size());
      bytes += to.size();
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::uint64_t> StoreSnapshot(StateStore& store,
                                            const LeasedStore& leased) {
  if (auto s = CheckLeased(leased); !s.ok()) return s;
  SnapshotSpec spec;
  spec.kind = leased.kind == FileKind::kSession ? EntryKind::kSession
                                                : EntryKind::kPrefix;
  spec.fingerprint = leased.fingerprint;
  spec.layout = leased.layout.layout;
  spec.root = leased.root;
  spec.key_ids = leased.key_ids;
  for (const LeasedState& state : leased.states) {
    spec.states.push_back(
        {state.position, state.kind, ProvenanceAt(leased, state.position)});
  }
  if (leased.taint < leased.key_ids.size()) spec.taint = leased.taint;
  if (spec.kind == EntryKind::kSession) {
    spec.session_id = SessionId(leased.root, leased.session_key);
    spec.session_key = leased.session_key;
    spec.record = leased.record;
  }
  auto filling = store.Begin(std::move(spec));
  if (!filling.ok()) return filling.status();
  std::uint64_t bytes = 0;
  if (auto s = CopyRows(leased, **filling, bytes); !s.ok()) return s;
  for (std::size_t i = 0; i < leased.states.size(); ++i) {
    const auto to = (*filling)->state(i);
    CopyState(leased, leased.states[i], to);
    bytes += to.size();
  }
  if (!StillLeased(leased)) {
    return absl::AbortedError("the lease ended before all was copied");
  }
  (*filling)->Commit();
  return bytes;
}

}  // namespace holdfast::cachesvc
