// The chunk store of a real folder, with everything it stands on.
#ifndef HOLDFAST_CACHESVC_STORE_OPEN_STORE_H_
#define HOLDFAST_CACHESVC_STORE_OPEN_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"
#include "cachesvc/io/io_pool.h"
#include "cachesvc/store/chunk_store.h"
#include "shared/arena/unique_fd.h"

namespace holdfast::cachesvc {

struct OpenStoreOptions {
  StoreOptions store;
  IoPoolOptions pool;
  std::uint64_t index_cache_bytes = std::uint64_t{32} << 20;
};

// Destroyed in the right order: the store first, the folder's lock last.
struct OpenedStore {
  UniqueFd lock;
  std::unique_ptr<IoPool> pool;
  std::unique_ptr<Index> index;
  std::unique_ptr<ChunkStore> store;
  // Not empty when the index was damaged, moved aside and rebuilt: why. Pins,
  // counters of use, limits and the service clock came from the ledger.
  std::string index_was_damaged;
};

// Makes the folder (mode 0700) when it is not there. Refused, with the reason:
// a folder that is not ours or that others may write to, one that another
// process uses (its pid is named), a file system without direct I/O.
absl::StatusOr<std::unique_ptr<OpenedStore>> OpenStore(
    const OpenStoreOptions& options);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_OPEN_STORE_H_
