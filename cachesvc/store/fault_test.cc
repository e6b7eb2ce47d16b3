// The fault matrix: one scenario of stores, uses, evictions, replacements and
// deletions, run once for every call of file system and index, with that call
// failing, writing short, or the machine crashing in it.
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/store/testing/fault_client.h"
#include "cachesvc/store/testing/store_world.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::FaultClient;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::PromptIds;
using testing::ReadBack;
using testing::StoreWorld;

std::int64_t CountCalls() {
  StoreWorld world;
  EXPECT_TRUE(world.Open().ok());
  world.faults.Clear();
  FaultClient client(world);
  client.Run();
  const std::int64_t calls = world.faults.calls();
  client.Check("without a fault");
  EXPECT_EQ(client.acknowledged(), 4u);
  EXPECT_EQ(world.store->counters().evicted_anchors, 2u);
  return calls;
}

TEST(FaultMatrixTest, ACrashAtAnyCall) {
  const std::int64_t calls = CountCalls();
  ASSERT_GT(calls, 140);
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    for (std::int64_t k = 0; k < calls; ++k) {
      StoreWorld world;
      ASSERT_TRUE(world.Open().ok());
      world.faults.CrashAt(k);
      FaultClient client(world);
      client.Run();
      const std::string when = fmt::format("seed {}, crash at call {} ({})",
                                           seed, k, world.faults.CallName(k));
      const auto reopened = world.Reboot(seed);
      ASSERT_TRUE(reopened.ok()) << when << ": " << reopened;
      client.Check(when);
      if (HasFatalFailure()) return;
      // And it works again.
      const auto again = MakeAnchor(PromptIds(0, 99, 512));
      const auto written = world.store->WriteManifest(again->write);
      ASSERT_TRUE(written.ok()) << when << ": " << written.status();
      EXPECT_TRUE(ReadBack(*world.store, *again, written->file_key, 512).ok());
    }
  }
}

// A second crash, in the sweep that follows the first.
TEST(FaultMatrixTest, ACrashInTheSweepAfterACrash) {
  const std::int64_t calls = CountCalls();
  for (std::int64_t k = 5; k < calls; k += 7) {
    for (std::int64_t j = 0;; ++j) {
      StoreWorld world;
      ASSERT_TRUE(world.Open().ok());
      world.faults.CrashAt(k);
      FaultClient client(world);
      client.Run();
      world.store.reset();
      world.fs.Reboot(2);
      world.fake_index.Reboot(2);
      world.faults.CrashAt(j);
      const bool opened = world.Open().ok();
      const bool crashed = world.faults.crashed();
      const std::string when = fmt::format("crash at {}, then at {} ({})", k, j,
                                           world.faults.CallName(j));
      ASSERT_TRUE(world.Reboot(3).ok()) << when;
      client.Check(when);
      if (HasFatalFailure()) return;
      if (opened && !crashed) break;
    }
  }
}

TEST(FaultMatrixTest, AnErrorAtAnyCall) {
  const std::int64_t calls = CountCalls();
  for (const int error : {ENOSPC, EIO, EROFS}) {
    for (std::int64_t k = 0; k < calls; ++k) {
      StoreWorld world;
      ASSERT_TRUE(world.Open().ok());
      world.faults.FailAt(k, error);
      FaultClient client(world);
      client.Run();
      const std::string when = fmt::format("error {} at call {} ({})", error, k,
                                           world.faults.CallName(k));
      world.faults.Clear();
      // The same process goes on, and finishes what it could not.
      ASSERT_TRUE(world.store->Maintain().ok()) << when;
      client.Check(when + ", going on");
      ASSERT_TRUE(world.Reboot(0).ok()) << when;
      client.Check(when + ", after a restart");
      if (HasFatalFailure()) return;
    }
  }
}

// From some call on the disk takes nothing any more.
TEST(FaultMatrixTest, ADiskThatStaysBroken) {
  const std::int64_t calls = CountCalls();
  for (const int error : {ENOSPC, EROFS}) {
    for (std::int64_t k = 0; k < calls; k += 3) {
      StoreWorld world;
      ASSERT_TRUE(world.Open().ok());
      world.faults.FailFrom(k, error);
      FaultClient client(world);
      client.Run();
      const std::string when = fmt::format("error {} from call {} on ({})",
                                           error, k, world.faults.CallName(k));
      world.faults.Clear();
      ASSERT_TRUE(world.store->Maintain().ok()) << when;
      client.Check(when);
      ASSERT_TRUE(world.Reboot(1).ok()) << when;
      client.Check(when + ", after a restart");
      if (HasFatalFailure()) return;
    }
  }
}

// No file is forgotten because the rebuild of the index could not read it all.
TEST(FaultMatrixTest, AnErrorAtAnyCallOfARebuild) {
  for (std::int64_t k = 0;; ++k) {
    StoreWorld world;
    ASSERT_TRUE(world.Open().ok());
    std::vector<FileKey> written;
    for (const std::uint64_t seed : {1u, 2u}) {
      for (const auto& write :
           {MakeAnchor(PromptIds(1024, seed, 1536)),
            MakeSession(PromptIds(1024, seed, 1300), std::to_string(seed))}) {
        const auto result = world.store->WriteManifest(write->write);
        ASSERT_TRUE(result.ok()) << result.status();
        written.push_back(result->file_key);
      }
    }
    world.faults.Clear();
    world.faults.FailAt(k, EIO);
    const auto rebuilt = world.store->RebuildIndex();
    const bool reached = k < world.faults.calls();
    const std::string when =
        fmt::format("error at call {} ({})", k,
                    reached ? world.faults.CallName(k) : "none");
    world.faults.Clear();
    ASSERT_TRUE(world.store->Maintain().ok()) << when;
    EXPECT_EQ(world.Unaccounted(), "") << when;
    for (const FileKey& key : written) {
      // A file that could not be read went, and said so.
      EXPECT_TRUE(world.store->ShowManifest(key) ||
                  (rebuilt.ok() && rebuilt->corrupt_files > 0))
          << when;
    }
    if (!reached) break;
  }
}

TEST(FaultMatrixTest, AShortWriteAtAnyCall) {
  const std::int64_t calls = CountCalls();
  for (std::int64_t k = 0; k < calls; ++k) {
    StoreWorld world;
    ASSERT_TRUE(world.Open().ok());
    world.faults.ShortAt(k);
    FaultClient client(world);
    client.Run();
    world.faults.Clear();
    client.Check(fmt::format("short at call {}", k));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
