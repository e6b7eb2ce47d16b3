#include "cachesvc/index/rocksdb_index.h"

#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "cachesvc/index/rows.h"
#include "fmt/format.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"

namespace holdfast::cachesvc {
namespace {

// Names of the column families, in the order of Table.
constexpr std::array<const char*, kTables> kNames = {
    "chunks", "anchors", "sessions", "lines", "hits", "tombstones", "meta"};

absl::Status ToStatus(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = fmt::format("{}: {}", what, status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

rocksdb::Slice ToSlice(std::string_view text) {
  return {text.data(), text.size()};
}
std::string_view ToView(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

class Merger final : public rocksdb::AssociativeMergeOperator {
 public:
  explicit Merger(Table table) : table_(table) {}
  bool Merge(const rocksdb::Slice& key, const rocksdb::Slice* existing,
             const rocksdb::Slice& value, std::string* result,
             rocksdb::Logger*) const override {
    std::string_view old;
    if (existing != nullptr) old = ToView(*existing);
    *result = MergeRows(table_, ToView(key),
                        existing == nullptr ? nullptr : &old, ToView(value));
    return true;
  }
  const char* Name() const override { return "holdfast.merge.1"; }

 private:
  const Table table_;
};

rocksdb::DBOptions DbOptions(const RocksDbOptions& options) {
  rocksdb::DBOptions db;
  db.create_if_missing = true;
  db.create_missing_column_families = true;
  db.paranoid_checks = true;
  db.track_and_verify_wals_in_manifest = true;
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.max_open_files = -1;
  db.max_total_wal_size = std::uint64_t{64} << 20;
  db.keep_log_file_num = 5;
  db.max_log_file_size = std::size_t{8} << 20;
  db.max_background_jobs = 2;
  if (options.env != nullptr) db.env = options.env;
  return db;
}

rocksdb::ColumnFamilyOptions FamilyOptions(
    Table table, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions family;
  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_cache = cache;
  blocks.cache_index_and_filter_blocks = true;
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  blocks.format_version = 5;
  blocks.checksum = rocksdb::kXXH3;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  family.write_buffer_size = std::size_t{8} << 20;
  family.compression = rocksdb::kLZ4Compression;
  if (table == Table::kLines || table == Table::kHits) {
    family.merge_operator = std::make_shared<Merger>(table);
  }
  return family;
}

std::string AsideOf(const std::string& folder) { return folder + ".corrupt"; }

// Blocks, not sizes: logs are allocated ahead of what is in them. Files come
// and go meanwhile; nothing for a folder that is not there.
std::uint64_t BytesOfFolder(const std::string& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::end(it); it.increment(error)) {
    struct stat info;
    if (lstat(it->path().c_str(), &info) == 0) {
      sum += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return sum;
}

class RocksDbIndex final : public Index {
 public:
  RocksDbIndex(std::string folder, std::unique_ptr<rocksdb::DB> db,
               std::vector<rocksdb::ColumnFamilyHandle*> handles)
      : folder_(std::move(folder)),
        db_(std::move(db)),
        handles_(std::move(handles)) {}

  ~RocksDbIndex() override {
    for (auto* handle : handles_) {
      (void)db_->DestroyColumnFamilyHandle(handle);
    }
    (void)db_->Close();
  }

  absl::Status Write(const IndexBatch& batch, Durability durability) override {
    rocksdb::WriteBatch out;
    for (const IndexOp& op : batch.ops()) {
      auto* handle = Handle(op.table);
      rocksdb::Status status;
      switch (op.kind) {
        case IndexOp::Kind::kPut:
          status = out.Put(handle, ToSlice(op.key), ToSlice(op.value));
          break;
        case IndexOp::Kind::kDelete:
          status = out.Delete(handle, ToSlice(op.key));
          break;
        case IndexOp::Kind::kMerge:
          status = out.Merge(handle, ToSlice(op.key), ToSlice(op.value));
          break;
      }
      if (!status.ok()) return ToStatus(status, "batch for " + folder_);
    }
    rocksdb::WriteOptions options;
    options.sync = durability == Durability::kSynced;
    return ToStatus(db_->Write(options, &out), "write index " + folder_);
  }

  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) override {
    std::string value;
    const auto status = db_->Get({}, Handle(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return ToStatus(status, "read index " + folder_);
    return std::optional<std::string>(std::move(value));
  }

  absl::StatusOr<std::vector<std::optional<std::string>>> GetMany(
      Table table, std::span<const std::string> keys) override {
    std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
    std::vector<rocksdb::PinnableSlice> values(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db_->MultiGet({}, Handle(table), slices.size(), slices.data(),
                  values.data(), statuses.data());
    std::vector<std::optional<std::string>> result(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (statuses[i].IsNotFound()) continue;
      if (!statuses[i].ok()) {
        return ToStatus(statuses[i], "read index " + folder_);
      }
      result[i] = values[i].ToString();
    }
    return result;
  }

  absl::Status Scan(
      Table table,
      const std::function<bool(std::string_view, std::string_view)>& visit)
      override {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.total_order_seek = true;
    const std::unique_ptr<rocksdb::Iterator> it(
        db_->NewIterator(options, Handle(table)));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      if (!visit(ToView(it->key()), ToView(it->value()))) break;
    }
    return ToStatus(it->status(), "scan index " + folder_);
  }

  std::uint64_t DiskBytes() override {
    return BytesOfFolder(folder_) + BytesOfFolder(AsideOf(folder_));
  }

 private:
  rocksdb::ColumnFamilyHandle* Handle(Table table) const {
    return handles_[static_cast<std::size_t>(table)];
  }

  const std::string folder_;
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // owned by db_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Index>> OpenRocksDbIndex(
    const RocksDbOptions& options) {
  const auto cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, FamilyOptions(Table::kMeta, cache)}};
  for (int i = 0; i < kTables; ++i) {
    families.emplace_back(kNames[static_cast<std::size_t>(i)],
                          FamilyOptions(static_cast<Table>(i), cache));
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  const auto status = rocksdb::DB::Open(DbOptions(options), options.folder,
                                        families, &handles, &db);
  // A file of the index that is gone counts as damage too.
  if (status.IsPathNotFound() || status.IsInvalidArgument()) {
    return absl::DataLossError(
        fmt::format("open index {}: {}", options.folder, status.ToString()));
  }
  if (!status.ok()) return ToStatus(status, "open index " + options.folder);
  std::unique_ptr<rocksdb::DB> owned(db);
  (void)owned->DestroyColumnFamilyHandle(handles.front());
  handles.erase(handles.begin());
  return std::make_unique<RocksDbIndex>(options.folder, std::move(owned),
                                        std::move(handles));
}

absl::Status MoveIndexAside(const std::string& folder) {
  const std::string aside = AsideOf(folder);
  std::error_code error;
  std::filesystem::remove_all(aside, error);
  if (!error) std::filesystem::rename(folder, aside, error);
  if (error) {
    return absl::UnavailableError(
        fmt::format("move index {} to {}: {}", folder, aside, error.message()));
  }
  return absl::OkStatus();
}

}  // namespace holdfast::cachesvc
