// The fault matrix: one scenario of stores, uses, evictions, replacements and
// deletions, run once for every call of file system and index, with that call
// failing, writing short, or the machine crashing in it.
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/format/names.h"
#include "cachesvc/store/testing/store_world.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::Candidates;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::ReadBack;
using testing::StoreWorld;

// What a client of the store knows: what was acknowledged, what was deleted.
class Client {
 public:
  explicit Client(StoreWorld& world) : world_(world) {
    writes_.push_back(MakeAnchor(PromptIds(1024, 1, 1024)));
    writes_.push_back(MakeAnchor(PromptIds(1024, 2, 1536)));
    writes_.push_back(MakeSession(PromptIds(1024, 1, 1300), "a", 1100));
    writes_.push_back(MakeSession(PromptIds(1024, 1, 1700), "a", 1100));
    writes_.push_back(MakeSession(PromptIds(512, 4, 600), "b"));
    writes_.push_back(MakeAnchor(PromptIds(0, 5, 1024)));
    writes_.push_back(MakeAnchor(PromptIds(0, 6, 1024)));
  }

  void Run() {
    Write(0);
    Write(1);  // shares
    Write(2);  // a spill over the shared head
    Evict(0);
    Write(3);  // replaces 2
    Write(4);
    if (acknowledged_.contains(1)) {
      world_.store->NoteUse(acknowledged_.at(1));
    }
    (void)world_.store->Maintain();
    // A budget for two anchors: the third evicts.
    StoreLimits limits = world_.store->limits();
    limits.disk_budget_bytes = 100'000;
    (void)world_.store->SetLimits(limits);
    Write(5);
    Write(6);
    // A deletion that reports an error may have happened all the same.
    may_go_.insert({2, 3, 4});
    if (world_.store->Clear(FileKind::kSession, false).ok()) {
      for (const std::size_t i : {2, 3, 4}) Deleted(i);
    }
    Write(4);
    (void)world_.store->Maintain();
  }

  // After reopening, or going on.
  void Check(const std::string& when) {
    ASSERT_EQ(world_.Unaccounted(), "") << when;
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      for (const Candidate& candidate :
           Candidates(*world_.store, *writes_[i])) {
        if (!Mine(i, candidate)) continue;
        EXPECT_FALSE(deleted_.contains(candidate.file_key))
            << when << ": write " << i << " came back";
        const auto status = ReadBack(*world_.store, *writes_[i],
                                     candidate.file_key, candidate.position);
        // What a lookup offers is whole, also after the crash.
        EXPECT_TRUE(status.ok()) << when << ": write " << i << ": " << status;
      }
    }
    for (const auto& [i, key] : acknowledged_) {
      EXPECT_TRUE(world_.store->ShowManifest(key) || MayBeEvicted(i))
          << when << ": write " << i << " is lost";
    }
  }

  std::size_t acknowledged() const { return acknowledged_.size(); }

 private:
  // A session's file serves the other's tokens as well where they share.
  bool Mine(std::size_t i, const Candidate& candidate) const {
    const auto it = keys_.find(candidate.file_key);
    return it == keys_.end() ? candidate.position <= writes_[i]->ids.size() &&
                                   HasState(i, candidate.position)
                             : it->second == i;
  }
  bool HasState(std::size_t i, std::uint64_t position) const {
    for (const StateWrite& state : writes_[i]->write.states) {
      if (state.position == position) return true;
    }
    return false;
  }
  // 5 and 6 make others go.
  bool MayBeEvicted(std::size_t i) const {
    return i == 0 || i == 1 || i == 5 || i == 6 || may_go_.contains(i);
  }

  void Write(std::size_t i) {
    // From here on it may be there again, acknowledged or not.
    std::erase_if(deleted_,
                  [&](const FileKey& key) { return keys_.at(key) == i; });
    const auto result = world_.store->WriteManifest(writes_[i]->write);
    // A session's earlier file may go as soon as the next one is begun.
    if (i == 3) may_go_.insert(2);
    if (!result.ok()) return;
    may_go_.erase(i);
    acknowledged_[i] = result->file_key;
    keys_[result->file_key] = i;
    if (i == 3) acknowledged_.erase(2);
  }
  void Evict(std::size_t i) {
    const auto it = acknowledged_.find(i);
    if (it == acknowledged_.end()) return;
    const FileKey key = it->second;
    if (world_.store->Evict(std::span(&key, 1)).ok()) Deleted(i);
  }
  void Deleted(std::size_t i) {
    const auto it = acknowledged_.find(i);
    if (it == acknowledged_.end()) return;
    deleted_.insert(it->second);
    acknowledged_.erase(it);
  }

  StoreWorld& world_;
  std::vector<std::unique_ptr<OwnedWrite>> writes_;
  std::map<std::size_t, FileKey> acknowledged_;
  std::map<FileKey, std::size_t> keys_;
  std::set<FileKey> deleted_;
  std::set<std::size_t> may_go_;
};

std::int64_t CountCalls() {
  StoreWorld world;
  EXPECT_TRUE(world.Open().ok());
  world.faults.Clear();
  Client client(world);
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
      Client client(world);
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
      Client client(world);
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
      Client client(world);
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
      Client client(world);
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

TEST(FaultMatrixTest, AShortWriteAtAnyCall) {
  const std::int64_t calls = CountCalls();
  for (std::int64_t k = 0; k < calls; ++k) {
    StoreWorld world;
    ASSERT_TRUE(world.Open().ok());
    world.faults.ShortAt(k);
    Client client(world);
    client.Run();
    world.faults.Clear();
    client.Check(fmt::format("short at call {}", k));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
