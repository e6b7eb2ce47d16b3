// A manifest on its way to the disk.
#ifndef HOLDFAST_CACHESVC_STORE_STAGED_H_
#define HOLDFAST_CACHESVC_STORE_STAGED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/format/meta.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/prompt_keys.h"

namespace holdfast::cachesvc {

struct ChunkStore::Staged {
  Staged(const ManifestWrite& write)
      : keys(write.root, write.key_ids),
        end_position(write.key_ids.size()),
        requested_position(write.key_ids.size()),
        grid(write.layout.grid_tokens) {}

  struct Chunk {
    FileKey file_key{};
    PrefixKey prefix_key{};
    std::uint64_t first_position = 0;
    std::uint64_t end_position = 0;
    std::vector<ContentSum> sums;
    bool shared = false;  // in the store already
    std::string tmp;      // written, not yet published
    // Of its data; the next chunk is written meanwhile.
    std::shared_ptr<IoBatch> sync;
    bool published = false;
    ChunkRow row;
  };

  const PromptKeys keys;
  std::uint64_t end_position;  // less after a cut
  const std::uint64_t requested_position;
  const std::uint64_t grid;
  std::vector<Chunk> chunks;
  std::vector<FileKey> pended;
  FileMeta manifest;
  std::string manifest_tmp;
  bool manifest_published = false;
  std::uint64_t older_sequence = 0;  // of what is not in the catalog yet
  bool pinned = false;               // as the file that it replaces was
  bool counted = false;              // its failure
  WriteResult result;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_STAGED_H_
