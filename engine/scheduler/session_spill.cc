#include "engine/scheduler/session_spill.h"

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/anchors/thinning.h"
#include "engine/cache/state_image.h"
#include "engine/records/record_bytes.h"
#include "engine/retention/policy.h"
#include "shared/aligned_buffer.h"
#include "shared/cache_layout.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A resident's states, in ascending order, staged where the cache service
// reads.
class Staging {
 public:
  explicit Staging(EngineState& state) : state_(state) {}
  ~Staging() { state_.tiering->lending->Release(blocks_); }
  bool Add(int position, StoredState kind, const std::byte* sections) {
    // Evicts rows that would be lost with the process in any case.
    auto blocks = StageState(state_.model.layout(), state_.backend, sections,
                             state_.tiering->lending->pool(), /*evict=*/true);
    if (!blocks) return false;
    blocks_.insert(blocks_.end(), blocks->begin(), blocks->end());
    states.push_back({position, kind, *std::move(blocks)});
    return true;
  }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  std::vector<StoreJob::State> states;

 private:
  EngineState& state_;
  std::vector<BlockId> blocks_;
};

// One that was cut has no end.
bool Storable(const Sequence& sequence) { return sequence.sections != nullptr; }

// Which of a conversation's anchors go with its end.
struct KeptStates {
  int lines = kKeptLineAnchors;  // the newest
  // Where the next user message's prompt may part; and where a retry of the
  // last request does.
  bool turn = true;
  bool newest_message = true;
};
// Before a conversation loses rows there may be little room for states.
constexpr KeptStates kBeforeLoss = {.lines = 1, .newest_message = false};
constexpr KeptStates kStoreTurn = {.lines = 0, .newest_message = false};
constexpr KeptStates kNone = {
    .lines = 0, .turn = false, .newest_message = false};

// Twice what the measured rate says: a request waits, and the drive may have
// slowed down. Never longer than the blocks may be lent.
milliseconds BeforeLossDeadline(std::uint64_t bytes, double bytes_per_s) {
  const std::chrono::duration<double> twice(2 * static_cast<double>(bytes) /
                                            bytes_per_s);
  return std::clamp(duration_cast<milliseconds>(twice), milliseconds(1000),
                    deadlines::Lease(bytes));
}

int BlocksOfImage(const EngineState& state) {
  const std::uint64_t bytes = state.pool.block_bytes();
  return static_cast<int>((StateImageBytes(state.model.layout()) + bytes - 1) /
                          bytes);
}

// Files of one key replace one another: without a client's each conversation
// needs its own.
std::string SpillKey(const Sequence& sequence) {
  if (!sequence.session_key.empty()) return sequence.session_key;
  const auto first = std::min<std::size_t>(sequence.ids.size(), kBlockTokens);
  return "first-block:" +
         ToHex(ChainPrefixKey(sequence.root,
                              std::span(sequence.ids).first(first)));
}

// Its line anchors below `end`, oldest first. Those of rows that are its own
// alone are no place for another prompt to resume at.
AnchorList LinesBelow(const Sequence& sequence, int grid, int end) {
  AnchorList lines;
  for (const AnchorRef& anchor : sequence.anchors) {
    if (anchor->position % grid == 0 && anchor->position < end &&
        anchor->provenance == Provenance::kGrid) {
      lines.push_back(anchor);
    }
  }
  return lines;
}

// Those below `end` that `kept` says, oldest first.
AnchorList AnchorsBelow(const Sequence& sequence, int grid, int end,
                        const KeptStates& kept) {
  AnchorList anchors =
      NewestAnchors(LinesBelow(sequence, grid, end), kept.lines);
  AnchorList messages;
  for (const AnchorRef& anchor : sequence.anchors) {
    if (anchor->kind == AnchorKind::kMessage && anchor->position < end) {
      messages.push_back(anchor);
    }
  }
  const auto add = [&anchors](const AnchorRef& anchor) {
    const auto at = std::ranges::lower_bound(
        anchors, anchor->position, {},
        [](const AnchorRef& other) { return other->position; });
    if (at == anchors.end() || *at != anchor) anchors.insert(at, anchor);
  };
  if (const AnchorRef turn = TurnAnchor(messages); kept.turn && turn) add(turn);
  if (kept.newest_message && !messages.empty()) add(messages.back());
  return anchors;
}

// Message anchors exist only where any prompt may resume at them. On a line it
// serves other sessions as that.
StoredState KindOf(const Anchor& anchor, int grid) {
  if (anchor.position % grid == 0) return StoredState::kLine;
  return anchor.turn ? StoredState::kTurn : StoredState::kMessage;
}

// Of its first `rows` rows: all but what is lent.
StoreJob Describe(EngineState& state, const Sequence& sequence, int rows,
                  Tier tier) {
  StoreJob job;
  job.tier = tier;
  job.root = sequence.root;
  job.ids.assign(sequence.ids.begin(), sequence.ids.begin() + rows);
  job.session_key =
      tier == Tier::kSpill ? SpillKey(sequence) : sequence.session_key;
  // A part of it ends where its rows are anyone's.
  job.taint = sequence.taint < rows ? sequence.taint : kUntainted;
  // Of a part there is none: the record's end is not in it.
  if (const RecordRef record = state.records->FindEnd(
          sequence.root, sequence.session_key, job.ids)) {
    job.record = EncodeRecord(*record);
  }
  return job;
}

// The blocks of its first `rows` rows, fit to be read by others: a file must
// not carry what another conversation left in the last one. A part ends on a
// line, so that block is the sequence's own.
std::vector<BlockId> BlocksOf(EngineState& state, const Sequence& sequence,
                              int rows) {
  std::vector<BlockId> blocks;
  for (int i = 0; i * kBlockTokens < rows; ++i) {
    blocks.push_back(sequence.table.block(i));
  }
  if (rows % kBlockTokens != 0) {
    state.backend.ZeroBlockRows(
        state.model.kv_shape(),
        sequence.table.pointer(static_cast<int>(blocks.size()) - 1),
        rows % kBlockTokens);
  }
  return blocks;
}

// Of its first `rows` rows with the states that are staged.
std::optional<StoreJob> MakeJob(EngineState& state, const Sequence& sequence,
                                int rows, Tier tier, Staging& staging,
                                steady_clock::time_point deadline) {
  Lending& lending = *state.tiering->lending;
  auto lent = lending.Lend(BlocksOf(state, sequence, rows));
  if (!lent) return std::nullopt;
  std::vector<BlockId> leased = *lent;
  leased.insert(leased.end(), staging.blocks().begin(), staging.blocks().end());
  const auto lease = state.tiering->leases.Grant(std::move(leased), deadline);
  lending.Release(*lent);  // the lease has references of its own
  if (!lease) return std::nullopt;
  StoreJob job = Describe(state, sequence, rows, tier);
  job.blocks = *std::move(lent);
  job.states = std::move(staging.states);
  job.lease = *lease;
  job.deadline =
      std::max(milliseconds(0),
               duration_cast<milliseconds>(deadline - steady_clock::now()));
  return job;
}

// The first `rows` rows, those of the anchors below them that `kept` says, as
// far as there is room, and the state behind the last.
std::optional<StoreJob> StageSpill(EngineState& state, const Sequence& sequence,
                                   int rows, const KeptStates& kept,
                                   const std::byte* sections,
                                   steady_clock::time_point deadline) {
  const int grid = static_cast<int>(state.model.layout().grid_tokens);
  Staging staging(state);
  for (const AnchorRef& anchor : AnchorsBelow(sequence, grid, rows, kept)) {
    (void)staging.Add(anchor->position, KindOf(*anchor, grid),
                      anchor->sections);
  }
  const StoredState kind =
      rows == sequence.rows() ? StoredState::kEnd : StoredState::kLine;
  if (!staging.Add(rows, kind, sections)) return std::nullopt;
  return MakeJob(state, sequence, rows, Tier::kSpill, staging, deadline);
}

// For the spill. Nothing when there is no room for rows and their end.
std::optional<StoreJob> MakeSpill(EngineState& state, const Sequence& sequence,
                                  int rows, const KeptStates& kept,
                                  const std::byte* sections,
                                  steady_clock::time_point deadline) {
  state.tiering->leases.Collect(steady_clock::now());
  auto job = StageSpill(state, sequence, rows, kept, sections, deadline);
  // Without its end the anchors are worth less than the other way round.
  if (!job) job = StageSpill(state, sequence, rows, kNone, sections, deadline);
  return job;
}

// Between two looks at a deadline that may have come nearer.
constexpr milliseconds kLook{50};

// Whether it is there before the deadline.
bool WaitUntil(std::future<StoreOutcome>& stored,
               const SpillDeadline& deadline) {
  for (;;) {
    const auto now = steady_clock::now();
    const auto end = deadline();
    if (stored.wait_until(std::min(end, now + kLook)) ==
        std::future_status::ready) {
      return true;
    }
    if (steady_clock::now() >= end) return false;
  }
}

// The same for what is being stored already.
void AwaitStores(Tiering& tiering, const SpillDeadline& deadline) {
  for (;;) {
    const auto end = deadline();
    tiering.AwaitStores(std::min(end, steady_clock::now() + kLook));
    const bool none =
        tiering.counters->stores_under_way == 0 && tiering.waiting.empty();
    if (none || steady_clock::now() >= end) return;
  }
}

// Stores it, and waits; `resident`: the next start reads it back. Nothing when
// there is no room to lend it, or when it took too long.
std::optional<StoreOutcome> SpillRows(EngineState& state,
                                      const Sequence& sequence, int rows,
                                      const KeptStates& kept,
                                      const std::byte* sections, bool resident,
                                      const SpillDeadline& deadline) {
  const auto start = steady_clock::now();
  const auto end = deadline();
  if (start >= end) return std::nullopt;
  auto job = MakeSpill(state, sequence, rows, kept, sections, end);
  if (!job) {
    spdlog::warn("spill rows={}: there is no room to lend it", rows);
    return std::nullopt;
  }
  job->resident = resident;
  const auto outcome = std::make_shared<std::promise<StoreOutcome>>();
  std::future<StoreOutcome> stored = outcome->get_future();
  state.tiering->Store(*std::move(job), [outcome](StoreOutcome result) {
    outcome->set_value(result);
  });
  std::optional<StoreOutcome> result;
  if (WaitUntil(stored, deadline)) result = stored.get();
  const auto now = steady_clock::now();
  spdlog::info("spill session={:?} rows={} outcome={} ms={}",
               sequence.session_key.substr(0, 64), rows,
               result ? StoreOutcomeName(*result) : "deadline",
               duration_cast<milliseconds>(now - start).count());
  // Past the deadline this takes the blocks back.
  state.tiering->leases.Collect(now);
  return result;
}

// Residents, then what is parked, each newest first.
std::vector<const Sequence*> NewestFirst(const EngineState& state) {
  std::vector<const Seat*> seats;
  for (const Seat& seat : state.seats) {
    if (seat.resident) seats.push_back(&seat);
  }
  std::ranges::sort(seats, std::greater{}, &Seat::last_use);
  std::vector<const Sequence*> all;
  for (const Seat* seat : seats) all.push_back(&*seat->resident);
  std::vector<const Sequence*> kept = state.retained.Sequences();
  all.insert(all.end(), kept.rbegin(), kept.rend());
  return all;
}

// The less, the later it ended among those of its session. A request of
// another session that resumes in it makes it used, not ended.
std::size_t EndedRank(const EngineState& state, const Sequence& sequence) {
  if (sequence.session_key.empty()) return 0;
  const std::vector<RecordRef> records =
      state.records->Find(sequence.root, sequence.session_key, /*touch=*/false);
  const auto own = std::ranges::find_if(records, [&](const RecordRef& record) {
    return std::ranges::equal(
        std::span(record->ids).first(static_cast<std::size_t>(record->end)),
        sequence.ids);
  });
  return static_cast<std::size_t>(own - records.begin());
}

// What can be stored, newest first; of one session only what ended last: a
// title request has its conversation's key.
std::vector<const Sequence*> Conversations(const EngineState& state) {
  std::vector<const Sequence*> all = NewestFirst(state);
  std::erase_if(all, [](const Sequence* s) { return !Storable(*s); });
  std::map<std::pair<PrefixKey, std::string>, const Sequence*> last;
  for (const Sequence* sequence : all) {
    const auto [at, first] =
        last.try_emplace({sequence->root, SpillKey(*sequence)}, sequence);
    if (!first && EndedRank(state, *sequence) < EndedRank(state, *at->second)) {
      at->second = sequence;
    }
  }
  std::erase_if(all, [&](const Sequence* sequence) {
    return last.at({sequence->root, SpillKey(*sequence)}) != sequence;
  });
  return all;
}

bool IsResident(const EngineState& state, const Sequence& sequence) {
  return std::ranges::any_of(state.seats, [&sequence](const Seat& seat) {
    return seat.resident && &*seat.resident == &sequence;
  });
}

// There was no room to lend it: keeps its blocks and the state behind the last
// row until others have been stored. False when that would be of no use.
bool WaitForRoom(EngineState& state, const Sequence& sequence,
                 steady_clock::time_point deadline,
                 std::function<void(StoreOutcome)> done) {
  Tiering& tiering = *state.tiering;
  if (tiering.waiting.full() ||
      !tiering.lending->MayWaitFor(sequence.table.size(),
                                   BlocksOfImage(state))) {
    return false;
  }
  AlignedBuffer image(StateImageBytes(state.model.layout()));
  if (!WriteStateImage(state.model.layout(), state.backend,
                       sequence.sections.get(), image.span())
           .ok()) {
    return false;
  }
  std::vector<BlockId> rows = BlocksOf(state, sequence, sequence.rows());
  for (const BlockId block : rows) state.pool.Ref(block);
  tiering.waiting.Add(
      {.job = Describe(state, sequence, sequence.rows(), Tier::kSpill),
       .rows = std::move(rows),
       .kind = StoredState::kEnd,
       .image = std::move(image),
       .deadline = deadline,
       .done = std::move(done)});
  return true;
}

}  // namespace

int BlocksToStageSpill(const EngineState& state) {
  // Those of the whole, and one of half of it.
  return (kBeforeLoss.lines + kBeforeLoss.turn + 2) * BlocksOfImage(state);
}

milliseconds SpillTime(std::uint64_t pool_bytes) {
  constexpr milliseconds kLeast{10000};
  const milliseconds writing(pool_bytes / 300'000);  // 0.3 GB/s
  // Requests get no less than the spill.
  return std::clamp(writing, kLeast, deadlines::Drain(pool_bytes) / 2);
}

void SpillConversations(EngineState& state, const SpillDeadline& deadline) {
  if (state.tiering == nullptr || !state.tiering->tiers.attached()) return;
  // Those of conversations that lost rows, which are nowhere else; and what is
  // lent to stores leaves less room for states.
  AwaitStores(*state.tiering, deadline);
  // What guests left makes room for states.
  while (state.retained.GiveBlock(RetentionClass::kGuest)) {
  }
  for (const Sequence* sequence : Conversations(state)) {
    SpillRows(state, *sequence, sequence->rows(), KeptStates(),
              sequence->sections.get(), IsResident(state, *sequence), deadline);
  }
  state.tiering->tiers.Drained();
}

bool SpillsUnderWay(EngineState& state) {
  if (state.tiering == nullptr) return false;
  Tiering& tiering = *state.tiering;
  const auto now = steady_clock::now();
  tiering.leases.Collect(now);
  tiering.waiting.Retry(tiering, now);
  return tiering.leases.awaited() > 0 || !tiering.waiting.empty();
}

void SpillBeforeLoss(EngineState& state, const Sequence& sequence) {
  if (state.tiering == nullptr || !state.tiering->tiers.attached() ||
      !Storable(sequence)) {
    return;
  }
  Tiering& tiering = *state.tiering;
  const std::uint64_t bytes = sequence.table.size() * state.pool.block_bytes() +
                              StateImageBytes(state.model.layout());
  const auto start = steady_clock::now();
  const auto deadline =
      start + BeforeLossDeadline(bytes, tiering.counters->spill_bytes_per_s);
  // Half of it first: what is left when the whole takes too long.
  const int grid = static_cast<int>(state.model.layout().grid_tokens);
  const AnchorList half =
      NewestAnchors(LinesBelow(sequence, grid, sequence.rows() / 2 + 1), 1);
  if (!half.empty()) {
    auto job = MakeSpill(state, sequence, half[0]->position, kNone,
                         half[0]->sections, deadline);
    if (job) {
      tiering.leases.Await(job->lease);
      tiering.Store(*std::move(job),
                    [bell = state.bell](StoreOutcome) { bell->Ring(); });
    }
  }
  const auto ended = [start, deadline, bytes, rows = sequence.rows(),
                      bell = state.bell,
                      session = sequence.session_key.substr(0, 64),
                      counters = tiering.counters](StoreOutcome outcome) {
    const auto now = steady_clock::now();
    const std::chrono::duration<double> took = now - start;
    spdlog::info("spill session={:?} rows={} outcome={} ms={}", session, rows,
                 StoreOutcomeName(outcome),
                 duration_cast<milliseconds>(now - start).count());
    if (outcome == StoreOutcome::kDropped || now >= deadline) {
      ++counters->lost_spills;
    } else if (outcome == StoreOutcome::kStored) {
      counters->MeasuredSpill(bytes, took.count());
    }
    bell->Ring();
  };
  auto job = MakeSpill(state, sequence, sequence.rows(), kBeforeLoss,
                       sequence.sections.get(), deadline);
  if (job) {
    tiering.leases.Await(job->lease);
    tiering.Store(*std::move(job), ended);
  } else if (!WaitForRoom(state, sequence, deadline, ended)) {
    ended(StoreOutcome::kDropped);
  }
}

void SaveSession(EngineState& state, const std::string& session_key,
                 std::function<void(const SavedSession&)> done) {
  const std::vector<const Sequence*> all = Conversations(state);
  const auto found =
      std::ranges::find_if(all, [&session_key](const Sequence* sequence) {
        return session_key.empty() || sequence->session_key == session_key;
      });
  SavedSession saved;
  if (found == all.end()) {
    saved.status = absl::NotFoundError(
        session_key.empty() ? "no conversation is in the pool"
                            : "no conversation of this session key is in the "
                              "pool with its end");
    return done(saved);
  }
  if (state.tiering == nullptr || !state.tiering->tiers.attached()) {
    saved.status = absl::UnavailableError("no cache service is attached");
    return done(saved);
  }
  const Sequence& sequence = **found;
  const auto lease =
      deadlines::Lease(sequence.table.size() * state.pool.block_bytes());
  auto job = MakeSpill(state, sequence, sequence.rows(), KeptStates(),
                       sequence.sections.get(), steady_clock::now() + lease);
  if (!job) {
    saved.status = absl::FailedPreconditionError(
        "the pool has no room for a copy of its state");
    return done(saved);
  }
  saved.session_key = job->session_key;
  saved.rows = sequence.rows();
  job->pinned = true;
  state.tiering->Store(*std::move(job), [saved, done = std::move(done)](
                                            StoreOutcome outcome) mutable {
    if (outcome != StoreOutcome::kStored &&
        outcome != StoreOutcome::kWasThere) {
      saved.status = absl::FailedPreconditionError(
          std::string("the cache service did not store it: ") +
          StoreOutcomeName(outcome));
    }
    done(saved);
  });
}

void StoreTurn(EngineState& state, const Seat& seat) {
  if (state.tiering == nullptr || !seat.resident || !Storable(*seat.resident)) {
    return;
  }
  const Sequence& resident = *seat.resident;
  const int rows = resident.rows();
  const std::uint64_t bytes = resident.table.size() * state.pool.block_bytes() +
                              StateImageBytes(state.model.layout());
  if (rows < kBlockTokens || bytes > state.tiering->store_entry_bytes) return;
  Staging staging(state);
  std::optional<StoreJob> job;
  const int grid = static_cast<int>(state.model.layout().grid_tokens);
  const AnchorList kept = AnchorsBelow(resident, grid, rows, kStoreTurn);
  const std::uint64_t states =
      kept.size() * StateImageBytes(state.model.layout());
  if (bytes + states <= state.tiering->store_entry_bytes) {
    for (const AnchorRef& anchor : kept) {
      (void)staging.Add(anchor->position, KindOf(*anchor, grid),
                        anchor->sections);
    }
  }
  if (staging.Add(rows, StoredState::kEnd, resident.sections.get())) {
    job = MakeJob(state, resident, rows, Tier::kStore, staging,
                  steady_clock::now() + deadlines::Lease(bytes));
  }
  if (job) return state.tiering->Store(*std::move(job));
  ++state.tiering->counters->of(Tier::kStore)
        .stores[static_cast<std::size_t>(StoreOutcome::kDropped)];
}

}  // namespace holdfast::engine
