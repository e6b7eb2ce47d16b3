// An index in memory that fails and crashes at the calls its FaultPoint names;
// share the FaultPoint with a FakeFileSystem and both crash together.
#ifndef HOLDFAST_CACHESVC_INDEX_TESTING_FAKE_INDEX_H_
#define HOLDFAST_CACHESVC_INDEX_TESTING_FAKE_INDEX_H_

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/index/index.h"
#include "cachesvc/index/rows.h"
#include "shared/testing/fault_point.h"

namespace holdfast::cachesvc::testing {

// Thread-safe. `faults` must outlive it.
class FakeIndex final : public Index {
 public:
  explicit FakeIndex(holdfast::testing::FaultPoint& faults) : faults_(faults) {}

  absl::Status Write(const IndexBatch& batch, Durability durability) override {
    const auto fault = faults_.Next("index write");
    const std::lock_guard lock(mutex_);
    if (fault.kind == holdfast::testing::Fault::Kind::kError) {
      return absl::ErrnoToStatus(fault.error, "write the index");
    }
    if (fault.kind == holdfast::testing::Fault::Kind::kCrash) {
      // It may have reached the log.
      unsynced_.push_back(batch);
      return absl::UnavailableError("crashed in an index write");
    }
    Apply(batch, now_);
    unsynced_.push_back(batch);
    if (durability == Durability::kSynced) {
      durable_ = now_;
      unsynced_.clear();
    }
    return absl::OkStatus();
  }

  std::uint64_t DiskBytes() override { return disk_bytes; }
  std::atomic<std::uint64_t> disk_bytes = 0;  // for tests to set

  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) override {
    if (auto s = Check("index read"); !s.ok()) return s;
    const std::lock_guard lock(mutex_);
    return Find(table, key);
  }

  absl::StatusOr<std::vector<std::optional<std::string>>> GetMany(
      Table table, std::span<const std::string> keys) override {
    if (auto s = Check("index read"); !s.ok()) return s;
    const std::lock_guard lock(mutex_);
    std::vector<std::optional<std::string>> values;
    for (const std::string& key : keys) values.push_back(Find(table, key));
    return values;
  }

  absl::Status Scan(
      Table table,
      const std::function<bool(std::string_view, std::string_view)>& visit)
      override {
    if (auto s = Check("index scan"); !s.ok()) return s;
    Rows rows;
    {
      const std::lock_guard lock(mutex_);
      rows = now_[static_cast<std::size_t>(table)];
    }
    for (const auto& [key, value] : rows) {
      if (!visit(key, value)) break;
    }
    return absl::OkStatus();
  }

  // With seed 0 every unsynced batch is gone; with another, some of the first
  // ones are there.
  void Reboot(std::uint32_t seed) {
    const std::lock_guard lock(mutex_);
    std::mt19937 random(seed);
    const std::size_t kept = seed == 0 ? 0 : random() % (unsynced_.size() + 1);
    for (std::size_t i = 0; i < kept; ++i) Apply(unsynced_[i], durable_);
    unsynced_.clear();
    now_ = durable_;
  }

  // Everything is lost, as when the index's folder is.
  void Erase() {
    const std::lock_guard lock(mutex_);
    now_ = durable_ = {};
    unsynced_.clear();
  }

  std::size_t Size(Table table) const {
    const std::lock_guard lock(mutex_);
    return now_[static_cast<std::size_t>(table)].size();
  }
  // Damages every value of a table.
  void FlipBits(Table table) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, value] : now_[static_cast<std::size_t>(table)]) {
      value[value.size() / 2] ^= 1;
    }
    durable_ = now_;
  }

 private:
  using Rows = std::map<std::string, std::string, std::less<>>;
  using AllRows = std::array<Rows, kTables>;

  static void Apply(const IndexBatch& batch, AllRows& all) {
    for (const IndexOp& op : batch.ops()) {
      Rows& rows = all[static_cast<std::size_t>(op.table)];
      switch (op.kind) {
        case IndexOp::Kind::kPut:
          rows[op.key] = op.value;
          break;
        case IndexOp::Kind::kDelete:
          rows.erase(op.key);
          break;
        case IndexOp::Kind::kMerge: {
          const auto it = rows.find(op.key);
          std::string_view old;
          if (it != rows.end()) old = it->second;
          rows[op.key] = MergeRows(op.table, op.key,
                                   it == rows.end() ? nullptr : &old, op.value);
          break;
        }
      }
    }
  }

  absl::Status Check(const std::string& call) {
    const auto fault = faults_.Next(call);
    if (fault.kind == holdfast::testing::Fault::Kind::kError) {
      return absl::ErrnoToStatus(fault.error, call);
    }
    if (fault.kind == holdfast::testing::Fault::Kind::kCrash) {
      return absl::UnavailableError("crashed in " + call);
    }
    return absl::OkStatus();
  }

  std::optional<std::string> Find(Table table, const std::string& key) const {
    const Rows& rows = now_[static_cast<std::size_t>(table)];
    const auto it = rows.find(key);
    if (it == rows.end()) return std::nullopt;
    return it->second;
  }

  holdfast::testing::FaultPoint& faults_;
  mutable std::mutex mutex_;
  AllRows now_;
  AllRows durable_;
  std::vector<IndexBatch> unsynced_;
};

}  // namespace holdfast::cachesvc::testing

#endif  // HOLDFAST_CACHESVC_INDEX_TESTING_FAKE_INDEX_H_
