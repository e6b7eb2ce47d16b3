// The index in RocksDB.
#ifndef HOLDFAST_CACHESVC_INDEX_ROCKSDB_INDEX_H_
#define HOLDFAST_CACHESVC_INDEX_ROCKSDB_INDEX_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"

namespace rocksdb {
class Env;
}

namespace holdfast::cachesvc {

struct RocksDbOptions {
  std::string folder;
  // Of blocks, index and filter blocks; the only memory that grows with rows.
  std::uint64_t block_cache_bytes = std::uint64_t{32} << 20;
  // For tests; not owned. nullptr: the machine's.
  rocksdb::Env* env = nullptr;
};

// Opens or creates it. DataLoss when what is there is damaged: see
// MoveIndexAside(). Errors name the folder.
absl::StatusOr<std::unique_ptr<Index>> OpenRocksDbIndex(
    const RocksDbOptions& options);

// Moves a damaged index out of the way, to "<folder>.corrupt" (one of an
// earlier time is removed first: what is kept on disk is bounded), so that the
// next open makes a new one, which is then rebuilt from the files.
absl::Status MoveIndexAside(const std::string& folder);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_INDEX_ROCKSDB_INDEX_H_
