#include "engine/scheduler/run_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/model_status.h"

namespace holdfast::engine {
namespace {

using Phase = RequestRun::Phase;

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

bool RunLoop::Step() {
  const std::uint64_t preemptions = totals_.preemptions;
  const std::size_t running = running_.size();
  bool moved = RestoreRound();
  moved |= DecodeRound();
  Collect();
  moved |= PrefillRound();
  Collect();
  return moved || preemptions != totals_.preemptions ||
         running != running_.size();
}

bool RunLoop::RestoreRound() {
  bool moved = false;
  for (Active& active : running_) {
    if (active.run->phase() != Phase::kRestoring) continue;
    active.run->RestoreStep();
    moved |= active.run->phase() != Phase::kRestoring;
  }
  Collect();
  return moved;
}

bool RunLoop::AnswersRun() const {
  return std::ranges::any_of(running_, [](const Active& active) {
    return active.run->phase() == Phase::kDecode;
  });
}

bool RunLoop::DecodeRound() {
  std::vector<Active*> all;
  for (Active& active : running_) all.push_back(&active);
  // Oldest first: who is preempted on the way has not been collected yet.
  std::vector<Active*> ready;
  for (Active* active : all) {
    if (active->run->phase() == Phase::kDecode && MakeReady(*active, {})) {
      ready.push_back(active);
    }
  }
  const int together = state_.DecodeRowsTogether();
  for (auto at = ready.begin(); at != ready.end();) {
    auto end = at;
    int rows = 0;
    do {
      rows += (*end++)->run->step_rows();
    } while (end != ready.end() && rows + (*end)->run->step_rows() <= together);
    DecodeTogether({at, end});
    at = end;
  }
  return !ready.empty();
}

void RunLoop::DecodeTogether(const std::vector<Active*>& batch) {
  std::vector<model::SequenceRows> rows;
  for (Active* active : batch) rows.push_back(active->run->DecodeRow());
  const absl::Status status = ToAbslStatus(state_.model.Forward(rows));
  for (Active* active : batch) active->run->Decoded(status);
}

bool RunLoop::PrefillRound() {
  const StepSize::Limits limits =
      AnswersRun() ? kBesideAnswers : StepSize::Limits{};
  // Each is tried once, the one that waited longest first.
  const std::uint64_t before = turns_;
  for (;;) {
    Active* first = nullptr;
    for (Active& active : running_) {
      if (active.run->phase() != Phase::kPrefill || active.turn > before) {
        continue;
      }
      if (first == nullptr || active.turn < first->turn) first = &active;
    }
    if (first == nullptr) return false;
    first->turn = ++turns_;
    if (!MakeReady(*first, limits)) continue;
    first->run->PrefillStep();
    return true;
  }
}

bool RunLoop::MakeReady(Active& active, const StepSize::Limits& limits) {
  for (;;) {
    const Supply supply = active.run->Prepare(limits);
    if (supply == Supply::kHave) return true;
    if (supply == Supply::kWait) {
      if (host_.MustStop(*active.job)) active.run->Cancel();
      return false;
    }
    // Who has ended gives its blocks back before the next round.
    if (std::ranges::any_of(running_, [](const Active& other) {
          return other.run->phase() == Phase::kEnded;
        })) {
      return false;
    }
    // Scratch rows take nothing from anybody.
    const bool scratch = active.job->request.cache_mode != CacheMode::kDefault;
    const auto youngest = std::prev(running_.end());
    if (running_.size() == 1 || scratch) {
      active.run->OutOfBlocks();
      return false;
    }
    const bool mine = &*youngest == &active;
    Preempt(youngest);
    if (mine) return false;
  }
}

void RunLoop::Preempt(Runs::iterator active) {
  ++totals_.preemptions;
  active->run->Pause();
  const auto place = std::ranges::find_if(paused_, [&](const Active& other) {
    return other.order > active->order;
  });
  paused_.splice(place, running_, active);
}

void RunLoop::Collect() {
  for (auto at = running_.begin(); at != running_.end();) {
    const auto active = at++;
    if (active->run->phase() == Phase::kEnded) End(running_, active);
  }
}

void RunLoop::End(Runs& from, Runs::iterator active) {
  const Result result = active->run->Finish();
  const double seconds = active->start == Clock::time_point()
                             ? 0
                             : Seconds(Clock::now() - active->start);
  Runs gone;
  gone.splice(gone.end(), from, active);
  host_.Finished(*gone.front().job, result, seconds);
}

}  // namespace holdfast::engine
