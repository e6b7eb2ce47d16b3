#include "cachesvc/statestore/state_store.h"

#include <algorithm>
#include <utility>

#include "cachesvc/store/prompt_keys.h"
#include "fmt/format.h"
#include "shared/first_number.h"

namespace holdfast::cachesvc {
namespace {

// Records that wait for their entries: of more they were put without one.
constexpr std::size_t kMostEarly = 16;
constexpr std::size_t kMostEarlyBytes = std::size_t{16} << 20;

std::uint64_t Blocks(std::uint64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

std::uint64_t SnapshotBytes(const CacheLayout& layout, std::uint64_t tokens,
                            std::uint64_t states) {
  return Blocks(tokens) * layout.BlockBytes() + states * StateBytes(layout) +
         tokens * sizeof(KeyId);
}

absl::Status CheckSpec(const SnapshotSpec& spec) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError("no snapshot: " + what);
  };
  const std::uint64_t tokens = spec.key_ids.size();
  if (tokens == 0 || spec.states.empty()) return bad("no rows or no state");
  for (const SnapshotState& state : spec.states) {
    if (state.position == 0 || state.position > tokens) {
      return bad(fmt::format("a state at {}", state.position));
    }
    if (state.provenance == Provenance::kGrid && state.position > spec.taint) {
      return bad(fmt::format("the state at {} is tainted", state.position));
    }
    if (spec.kind == EntryKind::kPrefix &&
        state.provenance != Provenance::kGrid) {
      return bad("a prefix entry holds grid state only");
    }
  }
  if (spec.kind == EntryKind::kPrefix && spec.taint < tokens) {
    return bad("a prefix entry holds grid rows only");
  }
  return absl::OkStatus();
}

}  // namespace

StateStore::Lock::~Lock() {
  const auto erased = std::exchange(store_.erased_, {});
  lock_.unlock();
}

StateStore::StateStore(const StateStoreOptions& options)
    : options_(options), next_number_(RandomFirstNumber()) {}

StateStore::Filling::~Filling() {
  if (snapshot_ == nullptr) return;
  const std::lock_guard lock(store_.mutex_);
  store_.stats_.filling_bytes -= snapshot_->bytes;
}

void StateStore::Filling::Commit() {
  const Lock lock(store_);
  store_.stats_.filling_bytes -= snapshot_->bytes;
  store_.Publish(std::move(snapshot_));
}

absl::StatusOr<std::unique_ptr<StateStore::Filling>> StateStore::Begin(
    SnapshotSpec spec) {
  if (auto s = CheckSpec(spec); !s.ok()) return s;
  auto snapshot = std::make_shared<Snapshot>();
  const std::uint64_t tokens = spec.key_ids.size();
  snapshot->bytes = SnapshotBytes(spec.layout, tokens, spec.states.size()) +
                    spec.record.size();
  {
    const Lock lock(*this);
    if (snapshot->bytes >
        std::min(options_.entry_bytes, options_.budget_bytes)) {
      ++stats_.refused_too_large;
      return absl::ResourceExhaustedError(
          fmt::format("a snapshot of {} bytes does not fit into the store",
                      snapshot->bytes));
    }
    // What others fill or read cannot be freed: nobody goes in vain.
    const std::uint64_t in_use =
        stats_.filling_bytes + HeldBytes() + ReadBytes();
    if (snapshot->bytes + in_use > options_.budget_bytes) {
      ++stats_.refused_in_use;
      return absl::ResourceExhaustedError(fmt::format(
          "no room for a snapshot of {} bytes beside {} that are in use",
          snapshot->bytes, in_use));
    }
    while (Used() + snapshot->bytes > options_.budget_bytes && EvictOne()) {
    }
    stats_.filling_bytes += snapshot->bytes;
  }
  for (std::uint64_t i = 0; i < Blocks(tokens); ++i) {
    snapshot->blocks.emplace_back(spec.layout.BlockBytes());
  }
  for (std::size_t i = 0; i < spec.states.size(); ++i) {
    snapshot->states.emplace_back(StateBytes(spec.layout));
  }
  snapshot->spec = std::move(spec);
  return std::unique_ptr<Filling>(new Filling(*this, std::move(snapshot)));
}

std::uint64_t StateStore::LongestLine(const CacheLayout& layout,
                                      std::uint64_t tokens) const {
  const std::uint64_t cap =
      std::min(options_.entry_bytes, options_.budget_bytes);
  std::uint64_t line = tokens / layout.grid_tokens * layout.grid_tokens;
  while (line > 0 && SnapshotBytes(layout, line, 1) > cap) {
    line -= layout.grid_tokens;
  }
  return line;
}

void StateStore::Publish(std::shared_ptr<Snapshot> snapshot) {
  const SnapshotSpec& spec = snapshot->spec;
  const PromptKeys keys(spec.root, spec.key_ids);
  Entry entry;
  entry.number = next_number_++;
  for (std::size_t i = 0; i < spec.states.size(); ++i) {
    entry.state_keys.push_back(keys.BlockKey(spec.states[i].position));
  }
  // The older one of a session, or of the same prefix.
  for (auto it = entries_.begin(); it != entries_.end();) {
    const SnapshotSpec& old = it->snapshot->spec;
    const bool same =
        old.kind == spec.kind && old.fingerprint == spec.fingerprint &&
        (spec.kind == EntryKind::kSession
             ? old.session_id == spec.session_id
             : old.key_ids == spec.key_ids && old.root == spec.root);
    const auto next = std::next(it);
    if (same) {
      ++stats_.replaced;
      Erase(it);
    }
    it = next;
  }
  ++stats_.stored;
  entry.record = spec.record;
  entry.bytes = snapshot->bytes;
  BytesOf(spec.kind) += entry.bytes;
  ++(spec.kind == EntryKind::kSession ? stats_.sessions : stats_.prefixes);
  for (std::size_t i = 0; i < entry.state_keys.size(); ++i) {
    states_[entry.state_keys[i]].push_back({entry.number, i});
  }
  entry.snapshot = std::move(snapshot);
  std::erase_if(early_,
                [&](EndRecord& record) { return TakeRecord(entry, record); });
  entries_.push_front(std::move(entry));
  by_number_[entries_.front().number] = entries_.begin();
}

bool StateStore::TakeRecord(Entry& entry, EndRecord& record) {
  const SnapshotSpec& spec = entry.snapshot->spec;
  if (spec.kind != EntryKind::kSession ||
      spec.session_id != record.session_id || spec.key_ids != record.key_ids) {
    return false;
  }
  const std::uint64_t without = entry.bytes - entry.record.size();
  entry.record = std::move(record.record);
  BytesOf(spec.kind) += without + entry.record.size() - entry.bytes;
  entry.bytes = without + entry.record.size();
  return true;
}

void StateStore::PutRecord(EndRecord record) {
  const Lock lock(*this);
  const bool taken =
      std::any_of(entries_.begin(), entries_.end(),
                  [&](Entry& entry) { return TakeRecord(entry, record); });
  if (!taken) return KeepEarly(std::move(record));
  while (Used() > options_.budget_bytes && EvictOne()) {
  }
}

void StateStore::KeepEarly(EndRecord record) {
  const auto bytes = [](const EndRecord& early) {
    return early.record.size() + early.key_ids.size() * sizeof(KeyId);
  };
  std::erase_if(early_, [&](const EndRecord& other) {
    return other.session_id == record.session_id;
  });
  early_.push_back(std::move(record));
  std::size_t sum = 0;
  for (const EndRecord& early : early_) sum += bytes(early);
  while (early_.size() > kMostEarly || sum > kMostEarlyBytes) {
    sum -= bytes(early_.front());
    early_.pop_front();
  }
}

void StateStore::Erase(Entries::iterator entry) {
  const Snapshot& snapshot = *entry->snapshot;
  BytesOf(snapshot.spec.kind) -= entry->bytes;
  --(snapshot.spec.kind == EntryKind::kSession ? stats_.sessions
                                               : stats_.prefixes);
  for (const PrefixKey& key : entry->state_keys) {
    const auto it = states_.find(key);
    if (it == states_.end()) continue;
    std::erase_if(it->second, [&](const StateRef& ref) {
      return ref.entry == entry->number;
    });
    if (it->second.empty()) states_.erase(it);
  }
  by_number_.erase(entry->number);
  if (entry->snapshot.use_count() > 1) {
    std::erase_if(held_, [](const auto& held) { return held.first.expired(); });
    held_.emplace_back(entry->snapshot, snapshot.bytes);
  }
  erased_.push_back(std::move(entry->snapshot));
  entries_.erase(entry);
}

std::uint64_t StateStore::HeldBytes() const {
  std::uint64_t sum = 0;
  for (const auto& [snapshot, bytes] : held_) {
    if (!snapshot.expired()) sum += bytes;
  }
  return sum;
}

std::uint64_t StateStore::ReadBytes() const {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries_) {
    if (entry.snapshot.use_count() > 1) sum += entry.bytes;
  }
  return sum;
}

// The least recently used entry of the class that holds more: neither class
// can push the other out of its half. The other one's where all of that class
// are being read.
bool StateStore::EvictOne() {
  const EntryKind first = stats_.session_bytes >= stats_.prefix_bytes
                              ? EntryKind::kSession
                              : EntryKind::kPrefix;
  auto victim = entries_.end();
  for (auto it = entries_.end(); it != entries_.begin();) {
    --it;
    if (it->snapshot.use_count() > 1) continue;
    const bool of_first = it->snapshot->spec.kind == first;
    if (of_first || victim == entries_.end()) victim = it;
    if (of_first) break;
  }
  if (victim == entries_.end()) return false;
  ++(victim->snapshot->spec.kind == EntryKind::kSession
         ? stats_.evicted_sessions
         : stats_.evicted_prefixes);
  Erase(victim);
  return true;
}

std::vector<StoreCandidate> StateStore::Lookup(
    const LookupRequest& request) const {
  std::vector<StoreCandidate> found;
  const std::lock_guard lock(mutex_);
  const auto add = [&](const PrefixKey& key, std::uint64_t tokens) {
    const auto it = states_.find(key);
    if (it == states_.end()) return;
    for (const StateRef& ref : it->second) {
      const Snapshot& snapshot = *by_number_.at(ref.entry)->snapshot;
      const SnapshotSpec& spec = snapshot.spec;
      const SnapshotState& state = spec.states[ref.state];
      if (spec.fingerprint != request.fingerprint ||
          state.position / kBlockTokens * kBlockTokens != tokens) {
        continue;
      }
      const auto ids =
          std::span(spec.key_ids).subspan(tokens, state.position - tokens);
      found.push_back({ref.entry,
                       spec.kind,
                       state.position,
                       state.kind,
                       state.provenance,
                       spec.taint,
                       SnapshotBytes(spec.layout, state.position, 1),
                       {ids.begin(), ids.end()},
                       spec.session_id});
    }
  };
  for (std::size_t i = request.block_keys.size(); i > 0; --i) {
    if (found.size() >= request.most) break;
    add(request.block_keys[i - 1], i * kBlockTokens);
  }
  if (found.size() < request.most) add(request.root, 0);
  std::stable_sort(found.begin(), found.end(),
                   [](const StoreCandidate& a, const StoreCandidate& b) {
                     return a.position > b.position;
                   });
  if (found.size() > request.most) found.resize(request.most);
  return found;
}

std::shared_ptr<const Snapshot> StateStore::Take(std::uint64_t entry,
                                                 std::uint64_t position,
                                                 std::span<const KeyId> key_ids,
                                                 bool touch) {
  const std::lock_guard lock(mutex_);
  const auto it = by_number_.find(entry);
  if (it == by_number_.end()) return nullptr;
  const std::vector<KeyId>& ids = it->second->snapshot->spec.key_ids;
  if (position > ids.size() || position > key_ids.size() ||
      !std::equal(ids.begin(),
                  ids.begin() + static_cast<std::ptrdiff_t>(position),
                  key_ids.begin())) {
    ++stats_.mismatches;
    return nullptr;
  }
  ++stats_.hits;
  if (touch) {
    ++it->second->hits;
    entries_.splice(entries_.begin(), entries_, it->second);
  }
  return it->second->snapshot;
}

std::optional<std::string> StateStore::SessionRecord(
    const Sha256Digest& session_id) const {
  const std::lock_guard lock(mutex_);
  const Entry* newest = nullptr;
  for (const Entry& entry : entries_) {
    const SnapshotSpec& spec = entry.snapshot->spec;
    if (spec.kind != EntryKind::kSession || spec.session_id != session_id) {
      continue;
    }
    if (newest == nullptr || entry.number > newest->number) newest = &entry;
  }
  if (newest == nullptr) return std::nullopt;
  return newest->record;
}

void StateStore::DropForeign(const Sha256Digest& fingerprint) {
  const Lock lock(*this);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->snapshot->spec.fingerprint != fingerprint) Erase(it);
    it = next;
  }
}

std::uint64_t StateStore::Clear() {
  const Lock lock(*this);
  const std::uint64_t count = entries_.size();
  early_.clear();
  while (!entries_.empty()) Erase(entries_.begin());
  return count;
}

bool StateStore::Drop(std::uint64_t entry) {
  const Lock lock(*this);
  const auto it = by_number_.find(entry);
  if (it == by_number_.end()) return false;
  Erase(it->second);
  return true;
}

std::uint64_t StateStore::Free(std::uint64_t bytes) {
  const Lock lock(*this);
  const std::uint64_t before = Used();
  while (before - Used() < bytes && EvictOne()) {
  }
  return before - Used();
}

std::vector<StateStore::EntryInfo> StateStore::List() const {
  std::vector<EntryInfo> list;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    const Snapshot& snapshot = *entry.snapshot;
    list.push_back({entry.number, snapshot.spec.kind,
                    snapshot.spec.key_ids.size(), entry.bytes, entry.hits,
                    snapshot.spec.session_key});
  }
  return list;
}

StateStoreStats StateStore::stats() const {
  const std::lock_guard lock(mutex_);
  StateStoreStats stats = stats_;
  stats.held_bytes = HeldBytes();
  return stats;
}

}  // namespace holdfast::cachesvc
