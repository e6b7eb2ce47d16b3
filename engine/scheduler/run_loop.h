// The requests that have left the queue, and the order of their steps.
#ifndef HOLDFAST_ENGINE_SCHEDULER_RUN_LOOP_H_
#define HOLDFAST_ENGINE_SCHEDULER_RUN_LOOP_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/in_flight.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/request_run.h"
#include "shared/clock/clock.h"

namespace holdfast::engine {

// As many requests run at once as there are seats. A round looks which rows
// were read from the tiers, which goes on beside it, then decodes one token of
// every answer, all in one Forward where the backend computes a row the same
// with others beside it, then does one step of one prompt; prompts take turns.
// While answers run, a prefill step is short (kBesideAnswers); on a grid
// backend it is a chunk as ever, for anything else would change its bits.
//
// A request that needs a block when all are used by running ones takes it from
// the youngest: that one is preempted, waits in front of the queue and starts
// again when there is room. The oldest never yields, so it ends, and so does
// every one after it.
//
// A request whose next blocks another one is computing waits for them and holds
// no seat (in_flight.h). The owner leaves an anchor where it parts from it;
// when the owner ends early, the oldest waiter goes on from what there is and
// the others wait for that one. Who would have the same rows read from a tier
// waits until they are there, too.
//
// The engine thread's. It has no thread, so that a test sees the same order
// each time.
class RunLoop {
 public:
  // The limits of a prefill step while answers run.
  static constexpr StepSize::Limits kBesideAnswers{.rows = 256, .seconds = 0.2};

  // Called by the loop; must not call it.
  class Host {
   public:
    virtual ~Host() = default;
    // The next request that waits for a seat; null: none does.
    virtual std::shared_ptr<Job> NextJob() = 0;
    // Asked before each step of a request.
    virtual bool MustStop(const Job& job) = 0;
    // Its last event.
    virtual void Finished(const Job& job, const Result& result,
                          double seconds) = 0;
    virtual void Refused(const Job& job, const Refusal& refusal) = 0;
  };
  struct Counts {
    int running = 0;  // have a seat
    int waiting = 0;  // left the queue and have none
    std::uint64_t preemptions = 0;
    std::uint64_t waits = 0;        // for another request's blocks
    std::uint64_t late_owners = 0;  // waits given up
  };

  // All outlive the loop.
  RunLoop(EngineState& state, Host& host, holdfast::Clock& clock)
      : state_(state), host_(host), clock_(clock) {}
  // Requests that have not ended get no event.
  ~RunLoop() = default;
  RunLoop(const RunLoop&) = delete;
  RunLoop& operator=(const RunLoop&) = delete;

  // Gives free seats to requests. To be called before each Step.
  void Admit();
  // One round. False: nothing can be done until EngineState::bell rings, a
  // request comes or one is to be cancelled.
  bool Step();
  // Nothing runs and nothing waits here.
  bool idle() const {
    return running_.empty() && paused_.empty() && waiting_.empty() &&
           next_.empty();
  }
  Counts counts() const;

 private:
  using Clock = std::chrono::steady_clock;

  // For which request, and until where.
  struct Wait {
    std::uint64_t owner = 0;  // its order
    int position = 0;         // 0: until it has read what it reads
    ChunkWatch watch;
  };
  struct Active {
    std::shared_ptr<Job> job;
    std::uint64_t order = 0;       // of admission: the lower the older
    Clock::time_point start = {};  // the first time it got a seat
    std::unique_ptr<RequestRun> run = nullptr;
    std::uint64_t turn = 0;  // of its last prefill step
    std::optional<Wait> wait = std::nullopt;
    std::vector<std::uint64_t> late_owners = {};  // waits for none of them
  };
  using Runs = std::list<Active>;  // oldest first
  using Position = std::pair<Runs*, Runs::iterator>;

  // Those that no step would end.
  void EndStoppedOnes();
  // The first of those that waited for an owner and need not any more; else the
  // queue's. Nowhere: there is none.
  Position Candidate();
  // False: there is no room yet, or nothing to admit.
  bool AdmitPaused();
  bool AdmitNext();
  std::unique_ptr<RequestRun> MakeRun(Job& job);
  // Does another request compute its next blocks? Then it waits for them.
  bool WaitsForOwner(Active& active);
  // Until where it waits for the rows of `owner`; 0: until those are read.
  std::optional<int> WaitsAt(const RequestRun& owner, const RequestRun& run,
                             int in_place) const;
  bool StillWaits(Active& active);
  bool HasFreeSeat() const;
  // Would the rows that it must have, and one block more, find a place without
  // preempting anybody?
  bool Fits(const RequestRun& run) const;
  // That it needs from the pool before it can decode.
  int Blocks(const RequestRun& run) const;
  MemoryGate Gate(const RequestRun& run);
  void RefuseForMemory(Runs& from, Runs::iterator active);
  void Begin(Runs& from, Runs::iterator active);

  // Each says whether it did anything.
  bool RestoreRound();
  bool DecodeRound();
  void DecodeTogether(const std::vector<Active*>& batch);
  bool PrefillRound();
  bool AnswersRun() const;
  // Finds blocks for its next step; false: it does not run (any more), or waits
  // for blocks of a conversation that is being spilled.
  bool MakeReady(Active& active, const StepSize::Limits& limits);
  void Preempt(Runs::iterator active);
  void Collect();
  // It leaves `from` and gets its last event.
  void End(Runs& from, Runs::iterator active);

  EngineState& state_;
  Host& host_;
  holdfast::Clock& clock_;
  Runs running_;
  Runs paused_;
  Runs waiting_;  // for other requests' blocks; oldest first
  Runs next_;     // at most one: the queue's first, for which there is no room
  std::uint64_t orders_ = 0;
  std::uint64_t turns_ = 0;
  Counts totals_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_RUN_LOOP_H_
