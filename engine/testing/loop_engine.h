// An EngineState with seats and its RunLoop, stepped by the test's own thread:
// what happens, and in which order, is the same each time.
#ifndef HOLDFAST_ENGINE_TESTING_LOOP_ENGINE_H_
#define HOLDFAST_ENGINE_TESTING_LOOP_ENGINE_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/scheduler/fair_queue.h"
#include "engine/scheduler/run_loop.h"
#include "engine/testing/test_engine.h"
#include "shared/clock/testing/fake_clock.h"

namespace holdfast::engine::testing {

// What a test holds of one request.
struct Submitted {
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::shared_ptr<Job> job;

  bool ended() const { return sink->ended(); }
  const Result& result() const { return *sink->result(); }
  Answer answer() const {
    return {result(), sink->ids, sink->tokens, sink->progress};
  }
};

class LoopEngine final : private RunLoop::Host {
 public:
  struct Size {
    int blocks = 16;
    int seats = 4;
    int max_rows = 512;
    int anchors = 32;
    RetentionBudgets kept = {};
    MemoryLimits memory = {};
  };
  // Rounds after which a test gives up: far more than any needs.
  static constexpr int kGiveUp = 1'000'000;

  LoopEngine(model::Model& model, kernels::Backend& backend, const Size& size,
             const TokenizerSpec& tokenizer = FakeTokenizer())
      : memory_(AllocateAligned(size.blocks * model.layout().BlockBytes())) {
    std::fill_n(memory_.get(), size.blocks * model.layout().BlockBytes(),
                std::byte{0xA5});
    state_ = MakeState(model, backend, memory_.get(), size.blocks, tokenizer,
                       size.max_rows, size.anchors, size.kept, size.seats,
                       size.memory);
    loop_ = std::make_unique<RunLoop>(
        *state_, static_cast<RunLoop::Host&>(*this), clock);
  }

  Submitted Submit(Request request) {
    Submitted submitted;
    submitted.job = std::make_shared<Job>(std::move(request), submitted.sink);
    queue_.Push(submitted.job);
    return submitted;
  }
  // As a client that goes away.
  void Cancel(const Submitted& submitted) {
    submitted.job->cancelled = true;
    if (!queue_.Remove(submitted.job)) return;
    Result result;
    result.reason = FinishReason::kCancelled;
    submitted.sink->OnFinished(result);
  }
  void Round() {
    loop_->Admit();
    loop_->Step();
  }
  bool idle() const { return queue_.size() == 0 && loop_->idle(); }
  void RunAll() {
    RunUntil([this] { return idle(); });
  }
  void RunUntil(const std::function<bool()>& done) {
    for (int round = 0; !done(); ++round) {
      ASSERT_LT(round, kGiveUp);
      Round();
    }
  }
  Answer Run(Request request) {
    const Submitted submitted = Submit(std::move(request));
    RunAll();
    return submitted.answer();
  }

  // When nothing runs: conversations alone hold blocks, and anchors have rows
  // below them.
  void Check() {
    if (state_->tiering != nullptr) state_->tiering->leases.Collect({});
    std::vector<BlockId> held;
    std::vector<const Sequence*> all = state_->Residents();
    for (const Sequence* kept : state_->retained.Sequences()) {
      all.push_back(kept);
    }
    for (const Sequence* resident : all) {
      for (int i = 0; i < resident->table.size(); ++i) {
        held.push_back(resident->table.block(i));
      }
      for (const AnchorRef& anchor : resident->anchors) {
        EXPECT_LE(anchor->position, resident->rows());
      }
    }
    const absl::Status budgets = state_->retained.CheckInvariants();
    EXPECT_TRUE(budgets.ok()) << budgets.message();
    const absl::Status status = state_->pool.CheckInvariants(held);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(state_->running.empty());
    for (const Seat& seat : state_->seats) EXPECT_FALSE(seat.taken);
    EXPECT_LE(state_->anchor_slots.live(RetentionClass::kResident),
              state_->anchor_slots.capacity());
  }

  holdfast::testing::FakeClock clock;
  EngineState& state() { return *state_; }
  RunLoop& loop() { return *loop_; }
  // In the order in which they ended.
  const std::vector<const Job*>& ended() const { return ended_; }

 private:
  std::shared_ptr<Job> NextJob() override { return queue_.Pop(); }
  bool MustStop(const Job& job) override { return job.cancelled; }
  void Finished(const Job& job, const Result& result, double) override {
    ended_.push_back(&job);
    job.sink->OnFinished(result);
  }
  void Refused(const Job& job, const Refusal& refusal) override {
    ended_.push_back(&job);
    job.sink->OnRefused(refusal);
  }

  AlignedBytes memory_;
  FairQueue queue_;
  std::unique_ptr<EngineState> state_;
  std::unique_ptr<RunLoop> loop_;
  std::vector<const Job*> ended_;
};

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_LOOP_ENGINE_H_
