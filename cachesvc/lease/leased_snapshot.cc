#include "cachesvc/lease/leased_snapshot.h"

#include <cstring>
#include <utility>

namespace holdfast::cachesvc {

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
  for (std::size_t i = 0; i < leased.blocks.size(); ++i) {
    const auto to = (*filling)->block(i);
    std::memcpy(
        to.data(),
        leased.pool->data() + leased.blocks[i] * leased.layout.block_bytes,
        to.size());
    bytes += to.size();
  }
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
