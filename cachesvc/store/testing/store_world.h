// A store over fakes, and conversations whose every byte is known.
#ifndef HOLDFAST_CACHESVC_STORE_TESTING_STORE_WORLD_H_
#define HOLDFAST_CACHESVC_STORE_TESTING_STORE_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/index/testing/fake_index.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/restore.h"
#include "shared/aligned_buffer.h"
#include "shared/clock/testing/fake_clock.h"
#include "shared/fs/testing/fake_file_system.h"
#include "shared/testing/fault_point.h"

namespace holdfast::cachesvc::testing {

Sha256Digest Fingerprint(const std::string& name);
PrefixKey Root(const Sha256Digest& fingerprint);

// Two views of odd names, two sections, a grid of 512 tokens in 2 blocks.
CacheLayout WorldLayout();

// `head` tokens that every prompt shares, then tokens of `seed`.
std::vector<KeyId> PromptIds(std::uint64_t head, std::uint64_t seed,
                             std::uint64_t tokens);

// A write with the memory it points to.
struct OwnedWrite {
  CacheLayout layout;
  std::vector<KeyId> ids;
  std::shared_ptr<std::vector<AlignedBuffer>> memory;
  ManifestWrite write;
};

// What a row or state holds follows from the key ids below it and `salt`, so
// equal prefixes have equal bytes.
std::unique_ptr<OwnedWrite> MakeAnchor(
    std::vector<KeyId> ids, const std::string& model = "model",
    const CacheLayout& layout = WorldLayout());
// An end anchor, and line anchors at all lines below it. Rows at or above
// `taint` are of provenance `session`; `version` changes their bytes.
std::unique_ptr<OwnedWrite> MakeSession(
    std::vector<KeyId> ids, const std::string& id,
    std::uint64_t taint = kNoTaint, std::uint64_t version = 0,
    const std::string& model = "model",
    const CacheLayout& layout = WorldLayout());

// Reads the state at `position` of a manifest back and compares every byte with
// what was written. A wrong byte is Internal, which no test expects; any other
// error is the store's.
absl::Status ReadBack(ChunkStore& store, const OwnedWrite& written,
                      const FileKey& manifest, std::uint64_t position);

// The deepest candidate for these ids.
std::optional<Candidate> Deepest(const ChunkStore& store,
                                 const OwnedWrite& prompt);
std::vector<Candidate> Candidates(const ChunkStore& store,
                                  const OwnedWrite& prompt);

// Fakes that crash together, and the store on them.
class StoreWorld {
 public:
  StoreWorld();
  // On an index of the test's own.
  explicit StoreWorld(Index* index);

  absl::Status Open();
  void Close() { store.reset(); }
  // The machine crashes here, or did at the call set in `faults`: what is
  // unsynced is lost by `seed`. Opens the store again.
  absl::Status Reboot(std::uint32_t seed);

  // Bytes of files that the store knows or will finish deleting, against those
  // on the disk; empty when they agree.
  std::string Unaccounted() const;

  holdfast::testing::FaultPoint faults;
  holdfast::testing::FakeFileSystem fs{faults};
  FakeIndex fake_index{faults};
  holdfast::testing::FakeClock clock;
  std::unique_ptr<IoPool> pool;
  StoreOptions options;
  Index* index;
  std::unique_ptr<ChunkStore> store;
};

}  // namespace holdfast::cachesvc::testing

#endif  // HOLDFAST_CACHESVC_STORE_TESTING_STORE_WORLD_H_
