// A scenario of stores, uses, evictions, replacements and deletions, and what
// its client may expect afterwards, whatever happened on the way.
#ifndef HOLDFAST_CACHESVC_STORE_TESTING_FAULT_CLIENT_H_
#define HOLDFAST_CACHESVC_STORE_TESTING_FAULT_CLIENT_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/testing/store_world.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc::testing {

// What a client of the store knows: what was acknowledged, what was deleted.
class FaultClient {
 public:
  explicit FaultClient(StoreWorld& world) : world_(world) {
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

}  // namespace holdfast::cachesvc::testing

#endif  // HOLDFAST_CACHESVC_STORE_TESTING_FAULT_CLIENT_H_
