#include "cachesvc/writer/store_writer.h"

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/store/testing/store_world.h"
#include "cachesvc/writer/rate_limiter.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::StoreWorld;

Deadline Soon() { return std::chrono::steady_clock::now() + seconds(60); }

TEST(RateLimiterTest, SpreadsBytes) {
  RateLimiter limiter(1000);
  const auto start = RateLimiter::Time(seconds(100));
  // After a pause a second's bytes go at once.
  EXPECT_EQ(limiter.Reserve(500, start), start);
  EXPECT_EQ(limiter.Reserve(500, start), start);
  EXPECT_EQ(limiter.Reserve(2000, start), start);
  EXPECT_EQ(limiter.Reserve(1, start), start + seconds(2));
  EXPECT_EQ(limiter.Reserve(1, start + seconds(10)), start + seconds(10));
  RateLimiter none(0);
  EXPECT_EQ(none.Reserve(1'000'000, start), start);
}

class StoreWriterTest : public ::testing::Test {
 protected:
  StoreWriterTest() { EXPECT_TRUE(world_.Open().ok()); }

  // A job that tells its end to `results`, and holds the writer at its first
  // chunk until `gate` when there is one.
  WriteJob Job(std::unique_ptr<OwnedWrite> owned,
               std::shared_future<void> gate = {}) {
    WriteJob job;
    job.write = owned->write;
    job.key_ids = owned->ids;
    const std::size_t number = results_.size();
    results_.emplace_back();
    if (gate.valid()) {
      job.write.chunk_read = [this, gate](std::size_t i) {
        if (i == 0) started_.set_value();
        gate.wait();
      };
    }
    job.done = [this, number](const absl::StatusOr<WriteResult>& result) {
      results_[number].set_value(result.status().code());
    };
    kept_.push_back(std::move(owned));
    return job;
  }
  absl::StatusCode Result(std::size_t i) {
    auto result = results_[i].get_future();
    if (result.wait_until(Soon()) != std::future_status::ready) {
      ADD_FAILURE() << "job " << i << " has no result";
      return absl::StatusCode::kDeadlineExceeded;
    }
    return result.get();
  }
  // Until the writer has begun the job that was given a gate.
  void WaitStarted() {
    EXPECT_EQ(started_.get_future().wait_until(Soon()),
              std::future_status::ready);
  }

  StoreWorld world_;
  std::vector<std::unique_ptr<OwnedWrite>> kept_;
  std::deque<std::promise<absl::StatusCode>> results_;
  std::promise<void> started_;
};

TEST_F(StoreWriterTest, WritesWhatItIsOffered) {
  StoreWriter writer(*world_.store, {});
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 1, 1024)))));
  EXPECT_TRUE(writer.Spill(Job(MakeSession(PromptIds(0, 2, 700), "s"))));
  ASSERT_TRUE(writer.Drain(Soon()).ok());
  EXPECT_EQ(Result(0), absl::StatusCode::kOk);
  EXPECT_EQ(Result(1), absl::StatusCode::kOk);
  const StoreWriterStats stats = writer.stats();
  EXPECT_EQ(stats.written, 2u);
  EXPECT_EQ(stats.queued_bytes, 0u);
  EXPECT_GT(stats.measured_bytes_per_second, 0u);
  EXPECT_EQ(world_.store->Use().anchors, 1u);
  EXPECT_EQ(world_.store->Use().sessions, 1u);
}

TEST_F(StoreWriterTest, AFullQueueDropsAndCounts) {
  std::promise<void> gate;
  StoreWriterOptions options;
  options.max_jobs = 2;
  StoreWriter writer(*world_.store, options);
  EXPECT_TRUE(writer.Offer(
      Job(MakeAnchor(PromptIds(0, 1, 512)), gate.get_future().share())));
  WaitStarted();
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 2, 512)))));
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 3, 512)))));
  EXPECT_FALSE(writer.Offer(Job(MakeAnchor(PromptIds(0, 4, 512)))));
  EXPECT_EQ(Result(3), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(writer.stats().dropped_full, 1u);
  EXPECT_EQ(writer.stats().queued_jobs, 2u);
  EXPECT_FALSE(writer.Drain(std::chrono::steady_clock::now()).ok());
  // A spill has a queue of its own, and goes first; one that finds no room by
  // its deadline is dropped.
  EXPECT_TRUE(writer.Spill(Job(MakeSession(PromptIds(0, 5, 700), "a"))));
  EXPECT_TRUE(writer.Spill(Job(MakeSession(PromptIds(0, 6, 700), "b"))));
  auto late = Job(MakeSession(PromptIds(0, 7, 700), "c"));
  late.write.deadline = std::chrono::steady_clock::now();
  EXPECT_FALSE(writer.Spill(std::move(late)));
  EXPECT_EQ(writer.stats().dropped_deadline, 1u);
  gate.set_value();
  ASSERT_TRUE(writer.Drain(Soon()).ok());
  EXPECT_EQ(writer.stats().written, 5u);
}

TEST_F(StoreWriterTest, ABoundInBytes) {
  std::promise<void> gate;
  StoreWriterOptions options;
  options.max_bytes = 1;
  StoreWriter writer(*world_.store, options);
  EXPECT_TRUE(writer.Offer(
      Job(MakeAnchor(PromptIds(0, 1, 512)), gate.get_future().share())));
  WaitStarted();
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 2, 512)))));
  EXPECT_FALSE(writer.Offer(Job(MakeAnchor(PromptIds(0, 3, 512)))));
  gate.set_value();
  ASSERT_TRUE(writer.Drain(Soon()).ok());
}

TEST_F(StoreWriterTest, StopDropsWhatWaits) {
  std::promise<void> gate;
  StoreWriter writer(*world_.store, {});
  EXPECT_TRUE(writer.Offer(
      Job(MakeAnchor(PromptIds(0, 1, 512)), gate.get_future().share())));
  WaitStarted();
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 2, 512)))));
  std::thread stopper([&] { writer.Stop(); });
  EXPECT_EQ(Result(1), absl::StatusCode::kCancelled);
  gate.set_value();
  stopper.join();
  EXPECT_EQ(Result(0), absl::StatusCode::kOk);
  EXPECT_FALSE(writer.Offer(Job(MakeAnchor(PromptIds(0, 3, 512)))));
  EXPECT_EQ(writer.stats().dropped_stop, 2u);
}

// The rate holds back offers; neither a spill nor the stop waits for it.
TEST_F(StoreWriterTest, TheRateHoldsBackOffersOnly) {
  StoreWriterOptions options;
  options.bytes_per_second = 1;  // hours for a chunk
  StoreWriter writer(*world_.store, options);
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 1, 512)))));
  EXPECT_TRUE(writer.Offer(Job(MakeAnchor(PromptIds(0, 2, 512)))));
  EXPECT_EQ(Result(0), absl::StatusCode::kOk);  // the first goes at once
  // A spill that came before the writer took the second would go first.
  for (const Deadline deadline = Soon(); writer.stats().queued_jobs > 0;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_TRUE(writer.Spill(Job(MakeSession(PromptIds(0, 3, 700), "s"))));
  EXPECT_EQ(Result(2), absl::StatusCode::kOk);
  writer.Stop();
  // Written if the spill or the stop found it waiting, dropped if it had not
  // begun.
  const absl::StatusCode second = Result(1);
  EXPECT_TRUE(second == absl::StatusCode::kOk ||
              second == absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace holdfast::cachesvc
