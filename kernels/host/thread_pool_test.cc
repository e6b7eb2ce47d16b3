#include "kernels/host/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast::kernels {
namespace {

// More threads than CPUs: late and sleeping workers occur in every round.
TEST(ThreadPoolTest, EveryIndexOnceInEveryLoop) {
  for (const int threads : {1, 2, 3, 16}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const int count = round % 40;
      std::vector<int> hits(count);  // each index written by one thread only
      pool.For(count, [&](int index, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++hits[index];
      });
      for (const int hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPoolTest, RunsHoldEveryIndexOnceAndEndAtMultiples) {
  for (const int threads : {1, 2, 3, 16}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      const int count = round % 40;
      const int run = 1 + round % 5;
      std::vector<int> hits(count);
      const int lead = round % 7 - 3;
      pool.ForRuns(count, run, lead, [&](int begin, int end, int) {
        EXPECT_LT(begin, end);
        EXPECT_EQ(begin / run, (end - 1) / run);
        for (int index = begin; index < end; ++index) ++hits[index];
      });
      for (const int hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPoolTest, SharesHoldEveryIndexOnceAndTheCallersTheLead) {
  for (const int threads : {1, 2, 3, 16}) {
    const ThreadPool pool(threads);
    for (const int count : {0, 1, 18, 40}) {
      const ThreadPool::Range even = pool.ShareOf(count, 0);
      for (int lead = -9; lead <= 9; ++lead) {
        int next = 0;
        for (int thread = threads - 1; thread >= 0; --thread) {
          const ThreadPool::Range share = pool.ShareOf(count, thread, lead);
          EXPECT_EQ(share.begin, next);
          EXPECT_GE(share.end, share.begin);
          next = share.end;
        }
        EXPECT_EQ(next, count);
        const int begin = threads == 1 ? 0 : even.begin - lead;
        EXPECT_EQ(pool.ShareOf(count, 0, lead).begin,
                  std::clamp(begin, 0, count));
      }
    }
  }
}

TEST(ThreadBalanceTest, EndsWhereTheOthersAreLateAsOftenAsEarly) {
  ThreadBalance balance;
  const auto late = [&balance](int lead) {
    for (int i = 0; i < 1000; ++i) {
      balance.Learn(balance.lead() < lead ? 100 : 0);
    }
    return balance.lead();
  };
  EXPECT_NEAR(late(3), 3, 1);
  EXPECT_NEAR(late(-2), -2, 1);
  const int most = late(1000);
  EXPECT_GT(most, 3);
  EXPECT_EQ(late(1000), most);
  EXPECT_EQ(late(-1000), -most);
}

// Longer than a loop that the threads share out in one piece.
TEST(ThreadPoolTest, EveryIndexOnceInALongLoop) {
  constexpr int kCount = 300'007;
  ThreadPool pool(2);
  std::vector<int> hits(kCount);
  pool.For(kCount, [&](int index, int) { ++hits[index]; });
  for (const int hit : hits) ASSERT_EQ(hit, 1);
}

TEST(ThreadPoolTest, LoopSeesWhatThePreviousWrote) {
  ThreadPool pool(4);
  std::vector<long> values(64, 0);
  for (int round = 0; round < 500; ++round) {
    std::vector<long> next(values.size());
    pool.For(64, [&](int index, int) {
      next[index] = values[(index + 1) % 64] + 1;
    });
    values = next;
  }
  for (const long value : values) EXPECT_EQ(value, 500);
}

// A thread that is held up holds up nothing but the index it is at.
TEST(ThreadPoolTest, OthersFinishTheShareOfAThread) {
  constexpr int kCount = 12;
  ThreadPool pool(2);
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;
  bool seen = false;
  pool.For(kCount, [&](int index, int) {
    std::unique_lock lock(mutex);
    if (index == 0) {
      seen = changed.wait_for(lock, std::chrono::seconds(60),
                              [&] { return done == kCount - 1; });
      return;
    }
    ++done;
    changed.notify_all();
  });
  EXPECT_TRUE(seen);
}

// Ends a worker's part again and again at the moment at which the caller stops
// looking and goes to sleep: one of the two must see the other.
TEST(ThreadPoolTest, CallerThatGoesToSleepSeesTheEnd) {
  constexpr int kLoops = 20'000;
  // On a busy machine a loop waits for its worker's turn: fewer of them.
  const auto enough =
      std::chrono::steady_clock::now() + std::chrono::seconds(5);
  ThreadPool pool(2);
  std::promise<void> promise;
  std::future<void> ended = promise.get_future();
  std::thread caller([&] {
    int slept = 0;
    int length = 1000;
    for (int loop = 0; loop < kLoops; ++loop) {
      if (std::chrono::steady_clock::now() > enough) break;
      std::atomic<int> turns{0};
      std::atomic<bool> workers{false};
      pool.For(2, [&turns, &workers, length](int index, int thread) {
        if (index == 0) {
          workers.store(thread != 0);
          while (turns.fetch_add(1) < length) {
          }
          return;
        }
        // As a rule the worker begins its part before the caller, whose own is
        // over, takes that over; it may be asleep until then.
        for (int i = 0; i < 1000 && turns.load() == 0; ++i) {
          std::this_thread::yield();
        }
      });
      if (!workers.load()) continue;
      const bool long_enough = pool.pauses() == ThreadPool::kSpins;
      slept += long_enough ? 1 : 0;
      const int step = slept == 0 ? length : 1 + length / 64;
      length = std::max(1, length + (long_enough ? -step : step));
    }
    EXPECT_GT(slept, 0);
    promise.set_value();
  });
  if (ended.wait_for(std::chrono::seconds(120)) != std::future_status::ready) {
    std::fputs("a caller was not woken\n", stderr);
    std::abort();
  }
  caller.join();
}

// Tells rounding modes apart by what the vector unit does, which is what
// counts: fegetround reads the x87 unit on x86.
bool RoundsUp() {
  volatile float one = 1.0f;
  volatile float little = 1e-9f;
  return one + little > 1.0f;
}

TEST(DefinedFloatModeTest, SetsAndRestores) {
  std::fesetround(FE_UPWARD);
  EXPECT_TRUE(RoundsUp());
  {
    const DefinedFloatMode mode;
    EXPECT_FALSE(RoundsUp());
    volatile float tiny = 1e-38f;
    EXPECT_NE(tiny * 0.01f, 0.0f);  // subnormal, not flushed
  }
  EXPECT_TRUE(RoundsUp());
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace holdfast::kernels
