#include "engine/scheduler/session_spill.h"

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/anchors/thinning.h"
#include "engine/cache/state_image.h"
#include "shared/cache_layout.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A resident's states, in ascending order, staged in the pool.
class Staging {
 public:
  explicit Staging(EngineState& state) : state_(state) {}
  ~Staging() {
    for (const BlockId block : blocks_) {
      state_.pool.Unref(block, BlockPool::Touch::kNo);
    }
  }
  bool Add(int position, StoredState kind, const std::byte* sections) {
    // Evicts rows that would be lost with the process in any case.
    auto blocks = StageState(state_.model.layout(), sections, state_.pool,
                             /*evict=*/true);
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

// The newest line anchors below the end, oldest first.
AnchorList LinesToKeep(const Sequence& resident, int grid) {
  AnchorList lines;
  for (const AnchorRef& anchor : resident.anchors) {
    if (anchor->position % grid == 0 && anchor->position < resident.rows()) {
      lines.push_back(anchor);
    }
  }
  if (lines.size() > kKeptLineAnchors) {
    lines.erase(lines.begin(), lines.end() - kKeptLineAnchors);
  }
  return lines;
}

std::optional<StoreJob> MakeJob(EngineState& state, const Sequence& resident,
                                Tier tier, Staging& staging,
                                steady_clock::time_point deadline) {
  const int rows = resident.rows();
  // A file must not carry what another conversation left in the block.
  if (rows % kBlockTokens != 0) {
    state.backend.ZeroBlockRows(state.model.kv_shape(),
                                resident.table.pointer(rows / kBlockTokens),
                                rows % kBlockTokens);
  }
  StoreJob job;
  for (int i = 0; i < resident.table.size(); ++i) {
    job.blocks.push_back(resident.table.block(i));
  }
  std::vector<BlockId> leased = job.blocks;
  leased.insert(leased.end(), staging.blocks().begin(), staging.blocks().end());
  const auto lease = state.tiering->leases.Grant(std::move(leased), deadline);
  if (!lease) return std::nullopt;
  job.tier = tier;
  job.root = resident.root;
  job.ids = resident.ids;
  job.states = std::move(staging.states);
  job.lease = *lease;
  job.session_key = resident.session_key;
  job.taint = resident.taint;
  job.deadline =
      std::max(milliseconds(0),
               duration_cast<milliseconds>(deadline - steady_clock::now()));
  return job;
}

void SpillOne(EngineState& state, const Sequence& resident,
              steady_clock::time_point deadline) {
  const auto start = steady_clock::now();
  if (start >= deadline) return;
  state.tiering->leases.Collect(start);
  const int grid = static_cast<int>(state.model.layout().grid_tokens);
  Staging staging(state);
  for (const AnchorRef& anchor : LinesToKeep(resident, grid)) {
    (void)staging.Add(anchor->position, StoredState::kLine, anchor->sections);
  }
  const int rows = resident.rows();
  std::optional<StoreJob> job;
  if (staging.Add(rows, StoredState::kEnd, resident.sections.get())) {
    job = MakeJob(state, resident, Tier::kSpill, staging, deadline);
  }
  if (!job) {
    spdlog::warn("spill rows={}: the pool has no room for its state", rows);
    return;
  }
  job->resident = true;
  const auto outcome = std::make_shared<std::promise<StoreOutcome>>();
  std::future<StoreOutcome> stored = outcome->get_future();
  state.tiering->Store(*std::move(job), [outcome](StoreOutcome result) {
    outcome->set_value(result);
  });
  const bool ended = stored.wait_until(deadline) == std::future_status::ready;
  spdlog::info(
      "spill rows={} outcome={} ms={}", rows,
      ended ? StoreOutcomeName(stored.get()) : "deadline",
      duration_cast<milliseconds>(steady_clock::now() - start).count());
  state.tiering->leases.Collect(steady_clock::now());
}

}  // namespace

void SpillResidents(EngineState& state, steady_clock::time_point deadline) {
  if (state.tiering == nullptr || !state.tiering->tiers.attached()) return;
  std::vector<const Seat*> seats;
  for (const Seat& seat : state.seats) {
    if (seat.resident) seats.push_back(&seat);
  }
  std::ranges::sort(seats, std::greater{}, &Seat::last_use);
  for (const Seat* seat : seats) SpillOne(state, *seat->resident, deadline);
  state.tiering->tiers.Drained();
}

void StoreTurn(EngineState& state, const Seat& seat) {
  if (state.tiering == nullptr || !seat.resident) return;
  const Sequence& resident = *seat.resident;
  const int rows = resident.rows();
  const std::uint64_t bytes = resident.table.size() * state.pool.block_bytes() +
                              StateImageBytes(state.model.layout());
  if (rows < kBlockTokens || bytes > state.tiering->store_entry_bytes) return;
  Staging staging(state);
  std::optional<StoreJob> job;
  if (staging.Add(rows, StoredState::kEnd, resident.sections.get())) {
    job = MakeJob(state, resident, Tier::kStore, staging,
                  steady_clock::now() + deadlines::Lease(bytes));
  }
  if (job) return state.tiering->Store(*std::move(job));
  ++state.tiering->counters->of(Tier::kStore)
        .stores[static_cast<std::size_t>(StoreOutcome::kDropped)];
}

}  // namespace holdfast::engine
