// The part of RunLoop that gives seats to requests.
#include <algorithm>
#include <utility>

#include "engine/pool/free_memory.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/memory_gate.h"
#include "engine/scheduler/run_loop.h"
#include "engine/scheduler/seat.h"
#include "fmt/format.h"

namespace holdfast::engine {
namespace {

using Phase = RequestRun::Phase;

// Predicted of a chunk before any step was measured.
constexpr double kUnknownChunkSeconds = 15;
// However fast a chunk is: a machine has other work too.
constexpr double kLeastChunkSeconds = 0.5;
// What else the machine does may have ended then.
constexpr int kMemoryRetryMs = 10'000;

}  // namespace

RunLoop::Counts RunLoop::counts() const {
  Counts counts = totals_;
  counts.running = static_cast<int>(running_.size());
  counts.waiting =
      static_cast<int>(paused_.size() + waiting_.size() + next_.size());
  return counts;
}

void RunLoop::Admit() {
  EndStoppedOnes();
  // What was preempted comes before the queue: nothing younger may take the
  // blocks that it waits for.
  while (HasFreeSeat() && (paused_.empty() ? AdmitNext() : AdmitPaused())) {
  }
}

void RunLoop::EndStoppedOnes() {
  for (Active& active : running_) {
    if (active.run->phase() == Phase::kHeld && host_.MustStop(*active.job)) {
      active.run->Cancel();
    }
  }
  Collect();
  for (Runs* waiting : {&paused_, &waiting_, &next_}) {
    for (auto at = waiting->begin(); at != waiting->end();) {
      const auto active = at++;
      if (!host_.MustStop(*active->job)) continue;
      active->run->Cancel();
      End(*waiting, active);
    }
  }
}

bool RunLoop::HasFreeSeat() const {
  return std::ranges::any_of(state_.seats,
                             [](const Seat& seat) { return !seat.taken; });
}

bool RunLoop::AdmitPaused() {
  const auto oldest = paused_.begin();
  if (!Fits(*oldest->run)) return false;
  const MemoryGate gate = Gate(*oldest->run);
  if (gate == MemoryGate::kClosed && running_.empty()) {
    oldest->run->OutOfBlocks();
    End(paused_, oldest);
    return true;
  }
  if (gate != MemoryGate::kPasses) return false;
  Begin(paused_, oldest);
  return true;
}

RunLoop::Position RunLoop::Candidate() {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (!StillWaits(*at)) return {&waiting_, at};
  }
  if (next_.empty()) {
    std::shared_ptr<Job> job = host_.NextJob();
    if (job == nullptr) return {nullptr, {}};
    auto run = MakeRun(*job);
    next_.push_back(
        {.job = std::move(job), .order = ++orders_, .run = std::move(run)});
  }
  return {&next_, next_.begin()};
}

std::unique_ptr<RequestRun> RunLoop::MakeRun(Job& job) {
  return std::make_unique<RequestRun>(
      state_, job.request, *job.sink,
      [this, &job] { return host_.MustStop(job); });
}

bool RunLoop::AdmitNext() {
  const auto [from, active] = Candidate();
  if (from == nullptr) return false;
  if (host_.MustStop(*active->job)) {
    active->run->Cancel();
    End(*from, active);
    return true;
  }
  if (const auto refusal = CheckScratch(
          active->job->request, state_.options.max_context,
          state_.pool.counts().free, state_.pool.block_bytes(),
          // A device has no memory outside the pool.
          state_.pool.host_memory() ? AvailableMemoryBytes() : 0)) {
    Runs gone;
    gone.splice(gone.end(), *from, active);
    host_.Refused(*gone.front().job, *refusal);
    return true;
  }
  if (WaitsForOwner(*active)) {
    const auto place = std::ranges::find_if(waiting_, [&](const Active& other) {
      return other.order > active->order;
    });
    waiting_.splice(place, *from, active);
    return true;
  }
  active->wait.reset();
  if (!Fits(*active->run)) return false;
  const MemoryGate gate = Gate(*active->run);
  // Those that run leave blocks that have their memory.
  if (gate == MemoryGate::kClosed && running_.empty()) {
    RefuseForMemory(*from, active);
    return true;
  }
  if (gate != MemoryGate::kPasses) return false;
  Begin(*from, active);
  return true;
}

MemoryGate RunLoop::Gate(const RequestRun& run) {
  return run.scratch() ? MemoryGate::kPasses
                       : PassMemoryGate(state_, Blocks(run));
}

int RunLoop::Blocks(const RequestRun& run) const {
  return BlocksToFind(state_, run.sequence().root, run.prompt_keys(),
                      run.target() + 1);
}

void RunLoop::RefuseForMemory(Runs& from, Runs::iterator active) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(Blocks(*active->run)) *
                              state_.pool.block_bytes();
  Runs gone;
  gone.splice(gone.end(), from, active);
  host_.Refused(
      *gone.front().job,
      {.reason = Refusal::Reason::kOutOfBlocks,
       .message = fmt::format(
           "the prompt needs {} MiB of memory, and the machine must keep {} "
           "MiB free",
           bytes >> 20, state_.options.memory.keep_free_bytes >> 20),
       .retry_after_ms = kMemoryRetryMs});
}

std::optional<int> RunLoop::WaitsAt(const RequestRun& owner,
                                    const RequestRun& run, int in_place) const {
  const bool restores = owner.phase() == Phase::kRestoring;
  if (!restores && owner.phase() != Phase::kPrefill) return std::nullopt;
  // On a grid backend those of its session's own are another's never.
  if (owner.sequence().taint != kUntainted) return std::nullopt;
  const int rows = restores ? in_place : owner.sequence().rows();
  const int position =
      WaitPosition(state_.rule, {.prompt = owner.prompt_keys(), .rows = rows},
                   run.prompt_keys(), in_place);
  if (position == 0) return std::nullopt;
  if (!restores) return position;
  // Else what it reads goes on differently before there is a place to start.
  return position >= owner.reads_to() ? std::optional(0) : std::nullopt;
}

bool RunLoop::WaitsForOwner(Active& active) {
  if (running_.empty() ||
      active.job->request.cache_mode == CacheMode::kBypass) {
    return false;
  }
  const RequestRun& run = *active.run;
  const int in_place = run.PlanInPlace();
  for (Active& owner : running_) {
    const RequestRun& theirs = *owner.run;
    if (std::ranges::count(active.late_owners, owner.order) > 0 ||
        theirs.scratch() || theirs.sequence().root != run.sequence().root) {
      continue;
    }
    const std::optional<int> position = WaitsAt(theirs, run, in_place);
    if (!position) continue;
    if (*position > 0) owner.run->AnchorAt(*position);
    const int grid = static_cast<int>(state_.model.layout().grid_tokens);
    const int rows = theirs.sequence().rows();
    active.wait.emplace(Wait{.owner = owner.order,
                             .position = *position,
                             .watch = ChunkWatch(grid, rows, clock_.Now())});
    ++totals_.waits;
    return true;
  }
  return false;
}

bool RunLoop::StillWaits(Active& active) {
  if (!active.wait) return false;
  const auto owner =
      std::ranges::find(running_, active.wait->owner, &Active::order);
  if (owner == running_.end()) return false;
  const bool restores = owner->run->phase() == Phase::kRestoring;
  if (active.wait->position == 0 || restores) return restores;
  const int rows = owner->run->sequence().rows();
  if (rows >= active.wait->position) return false;
  // Prompts take turns, and so do they with the answers.
  const auto turns = static_cast<double>(running_.size());
  const int grid = static_cast<int>(state_.model.layout().grid_tokens);
  const double measured = state_.step_size.PredictedSeconds(grid);
  const double chunk = measured == 0
                           ? kUnknownChunkSeconds
                           : std::max(kLeastChunkSeconds, turns * measured);
  if (!active.wait->watch.Late(rows, chunk, clock_.Now())) return true;
  active.late_owners.push_back(active.wait->owner);
  ++totals_.late_owners;
  return false;
}

bool RunLoop::Fits(const RequestRun& run) const {
  return running_.empty() || run.scratch() ||
         Blocks(run) <= ObtainableBlocks(state_);
}

void RunLoop::Begin(Runs& from, Runs::iterator active) {
  const auto now = Clock::now();
  if (&from != &paused_) active->start = now;
  const auto place = std::ranges::find_if(running_, [&](const Active& other) {
    return other.order > active->order;
  });
  running_.splice(place, from, active);
  Seat* const seat =
      ChooseSeat(state_.seats, active->run->sequence().root,
                 active->run->prompt_keys(), active->job->request.session_key);
  const std::chrono::duration<double, std::milli> waited =
      now - active->job->submitted;
  active->run->Start(*seat, waited.count());
  if (active->run->phase() == Phase::kEnded) End(running_, active);
}

}  // namespace holdfast::engine
