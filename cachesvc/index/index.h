// The index: small rows under keys, in tables, written in atomic batches. It is
// a cache of what the files say (plus counters), so losing it loses no state.
#ifndef HOLDFAST_CACHESVC_INDEX_INDEX_H_
#define HOLDFAST_CACHESVC_INDEX_INDEX_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast::cachesvc {

// Column families. Rows are in rows.h.
enum class Table : std::uint8_t {
  kChunks,
  kAnchors,
  kSessions,
  kLines,       // how often each grid line was read cold; merged
  kHits,        // uses of manifests; merged
  kTombstones,  // files that must go, by name
  kMeta,        // the service clock, settings, pins, measured costs
};
inline constexpr int kTables = 7;

struct IndexOp {
  enum class Kind : std::uint8_t { kPut, kDelete, kMerge };
  Kind kind;
  Table table;
  std::string key;
  std::string value;
};

// Takes effect as a whole or not at all, over all tables.
class IndexBatch {
 public:
  void Put(Table table, std::string key, std::string value) {
    ops_.push_back(
        {IndexOp::Kind::kPut, table, std::move(key), std::move(value)});
  }
  void Delete(Table table, std::string key) {
    ops_.push_back({IndexOp::Kind::kDelete, table, std::move(key), {}});
  }
  // Combines with the row that is there by MergeRows() (rows.h).
  void Merge(Table table, std::string key, std::string value) {
    ops_.push_back(
        {IndexOp::Kind::kMerge, table, std::move(key), std::move(value)});
  }
  const std::vector<IndexOp>& ops() const { return ops_; }
  bool empty() const { return ops_.empty(); }

 private:
  std::vector<IndexOp> ops_;
};

enum class Durability {
  kSynced,  // on the disk when Write() returns, with everything before it
  kLazy,    // some time later: a crash may lose it, never a part of it
};

// Thread-safe. DataLoss means that the index is damaged and must be rebuilt.
class Index {
 public:
  virtual ~Index() = default;
  // After an error the batch may be there or not.
  virtual absl::Status Write(const IndexBatch& batch,
                             Durability durability) = 0;
  // Nothing for a key that has no row.
  virtual absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) = 0;
  virtual absl::StatusOr<std::vector<std::optional<std::string>>> GetMany(
      Table table, std::span<const std::string> keys) = 0;
  // In the order of keys; `visit` returns false to end it.
  virtual absl::Status Scan(
      Table table,
      const std::function<bool(std::string_view, std::string_view)>& visit) = 0;
  // What it takes on the disk now, with what was moved aside of a damaged one.
  virtual std::uint64_t DiskBytes() = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_INDEX_INDEX_H_
