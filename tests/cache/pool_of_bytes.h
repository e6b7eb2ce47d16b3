// An engine without a model: a pool whose every byte is known, attached to a
// cache service, with the engine's own client.
#ifndef HOLDFAST_TESTS_CACHE_POOL_OF_BYTES_H_
#define HOLDFAST_TESTS_CACHE_POOL_OF_BYTES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache/leases.h"
#include "engine/cache/remote_tiers.h"
#include "engine/pool/block_pool.h"
#include "shared/aligned_buffer.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/attach_client.h"
#include "shared/cache_layout.h"

namespace holdfast::testing {

// What a conversation's rows and states hold: bytes that follow from `seed`.
struct Conversation {
  std::string session_key;
  std::vector<KeyId> ids;
  int taint = engine::kUntainted;
  std::vector<int> lines;  // with a state, below the end
  std::uint64_t seed = 1;
};

// Where a restore has put them.
struct Restored {
  absl::Status status;
  std::vector<engine::BlockId> blocks;  // with a reference each
  AlignedBuffer image;
};

// One thread.
class PoolOfBytes {
 public:
  PoolOfBytes(const CacheLayout& layout, int blocks, const std::string& run_dir,
              std::uint8_t fingerprint);

  // Until the cache service has it, within the deadline of an attach.
  bool WaitAttached() const;

  // Fills blocks and states, lends them, stores, and takes all back.
  engine::StoreOutcome Store(engine::Tier tier, const Conversation& from,
                             bool resident = false);
  // What the tier offers for all ids of it, its own session asking, at
  // `position`; nothing: no such offer.
  std::optional<engine::TierCandidate> Find(engine::Tier tier,
                                            const Conversation& of,
                                            int position);
  Restored Restore(const engine::TierCandidate& candidate,
                   const Conversation& of, std::chrono::milliseconds deadline,
                   std::function<bool()> stop = {});
  // Empty when rows and state are what Store() wrote, else what differs.
  std::string Compare(const Restored& got, const Conversation& of,
                      int position) const;
  void Release(Restored& restored);

  // Gives every block that can be had to another sequence, which fills it.
  void FillWithOthers(std::byte value);
  // Of the whole pool, block by block.
  std::vector<std::uint64_t> Sums() const;

  engine::RemoteTiers& tiers() { return *tiers_; }
  engine::BlockPool& pool() { return *pool_; }
  const attach::AttachClient& client() const { return *client_; }

 private:
  void FillBlock(std::byte* block, std::uint64_t seed, std::uint64_t index,
                 int rows) const;
  void FillState(std::byte* image, std::uint64_t seed, int position) const;
  std::vector<engine::BlockId> StageState(std::uint64_t seed, int position);

  const CacheLayout layout_;
  const std::uint8_t fingerprint_;
  std::unique_ptr<MemfdArena> arena_;
  std::unique_ptr<engine::BlockPool> pool_;
  std::unique_ptr<engine::Leases> leases_;
  std::unique_ptr<attach::AttachClient> client_;
  std::unique_ptr<engine::RemoteTiers> tiers_;
};

}  // namespace holdfast::testing

#endif  // HOLDFAST_TESTS_CACHE_POOL_OF_BYTES_H_
