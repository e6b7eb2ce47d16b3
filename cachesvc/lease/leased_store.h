// Writing out of blocks that the engine lent.
#ifndef HOLDFAST_CACHESVC_LEASE_LEASED_STORE_H_
#define HOLDFAST_CACHESVC_LEASE_LEASED_STORE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/attach/announced_layout.h"
#include "cachesvc/device/device_pool.h"
#include "cachesvc/store/store_types.h"
#include "shared/aligned_buffer.h"
#include "shared/arena/memfd_arena.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

struct LeasedState {
  std::uint64_t position = 0;
  StateKind kind = StateKind::kLine;
  std::vector<std::uint32_t> blocks = {};  // hold its image one after another
};

// One manifest out of an engine's pool. Everything in it came from another
// process.
struct LeasedStore {
  FileKind kind = FileKind::kAnchor;
  Sha256Digest fingerprint{};
  AnnouncedLayout layout;
  std::shared_ptr<const MappedArena> pool;
  std::shared_ptr<DevicePool> device;  // null: no rows lie on one
  PrefixKey root{};
  std::vector<KeyId> key_ids;
  std::vector<std::uint32_t> blocks;
  std::vector<LeasedState> states;
  std::uint64_t taint = kNoTaint;  // its lowest row of provenance `session`
  std::uint32_t lease_slot = 0;
  std::uint64_t lease_generation = 0;
  std::string session_key;
  std::string record;
  Deadline deadline;
  bool resident = false;  // of sessions: the next start reads it back
  bool pinned = false;
};

// InvalidArgument names what does not fit the layout.
absl::Status CheckLeased(const LeasedStore& store);
// Whether its rows are to be copied out of a device's memory.
bool RowsOnDevice(const LeasedStore& store);
// Copies of these blocks of its rows, as DevicePool::Copy.
absl::StatusOr<DevicePool::Copies> CopyDeviceRows(const LeasedStore& store,
                                                  std::size_t first_block,
                                                  std::size_t blocks);
// Of a copy of the sections at that position.
Provenance ProvenanceAt(const LeasedStore& store, std::uint64_t position);
// Whether its blocks hold what was lent.
bool StillLeased(const LeasedStore& store);
// Joins a state's blocks; `to` has StateBytes() bytes.
void CopyState(const LeasedStore& store, const LeasedState& state,
               std::span<std::byte> to);

// What a store needs to write it, checked and ready: states are copied out of
// the pool, rows stay where they are; those on a device are copied when they
// are written. Keeps the pool mapped. Not movable.
class LeasedWrite {
 public:
  // InvalidArgument names what does not fit the layout; Aborted: the lease had
  // ended before the states were copied.
  static absl::StatusOr<std::unique_ptr<LeasedWrite>> Make(LeasedStore store);

  // Valid as long as this lives.
  ManifestWrite& write() { return write_; }
  const std::vector<KeyId>& key_ids() const { return store_.key_ids; }

 private:
  explicit LeasedWrite(LeasedStore store) : store_(std::move(store)) {}
  absl::Status CopyStates();
  void PointAtRows();
  absl::StatusOr<FetchedRows> Fetch(std::size_t chunk,
                                    std::uint64_t grid) const;

  const LeasedStore store_;
  // What the I/O may read after this has gone.
  struct Memory {
    std::shared_ptr<const MappedArena> pool;
    std::vector<AlignedBuffer> states;
  };
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  ManifestWrite write_;
};

// Of a conversation: its key in one salt's prompts of one fingerprint.
Sha256Digest SessionId(const PrefixKey& root, const std::string& session_key);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_LEASE_LEASED_STORE_H_
