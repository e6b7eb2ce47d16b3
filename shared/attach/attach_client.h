// The engine's side of the attach (PROTOCOL.md): connects, attaches, announces
// the layout, watches, and begins again when the cache service goes away.
#ifndef HOLDFAST_SHARED_ATTACH_ATTACH_CLIENT_H_
#define HOLDFAST_SHARED_ATTACH_ATTACH_CLIENT_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/arena/device_pool.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/packet_socket.h"
#include "shared/attach/protocol.h"
#include "shared/attach/wake_fd.h"
#include "shared/cache_layout.h"
#include "shared/deadlines.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace holdfast::attach {

// How an engine stands with its cache service (CacheServiceLink on the wire).
struct AttachLink {
  enum class State {
    kOff,       // no client, or it is stopped
    kAttached,  // the layout is announced and the socket open
    kDetached,  // trying again; misses are cold meanwhile
    kRefused,   // the cache service said why not; trying again
  };
  State state = State::kOff;
  std::string detail;  // the last error or refusal; attached: the peer's pid
  std::uint64_t attaches = 0;

  bool operator==(const AttachLink&) const = default;
};

// One attach, for those who call the cache service. Whoever holds it keeps the
// staging memory mapped: let it go when `open` is false.
struct AttachSession {
  AttachSession(std::uint64_t epoch, std::uint32_t staging_slots,
                MappedArena staging, std::shared_ptr<grpc::Channel> channel)
      : epoch(epoch),
        staging_slots(staging_slots),
        staging(std::move(staging)),
        channel(std::move(channel)) {}

  std::uint64_t slot_bytes() const { return staging.bytes() / staging_slots; }

  const std::uint64_t epoch;
  const std::uint32_t staging_slots;
  const MappedArena staging;
  const std::shared_ptr<grpc::Channel> channel;
  std::atomic<bool> open{true};
  // The cache service reads the device's pool by itself. Once it could not, it
  // is not asked to again in this attach.
  mutable std::atomic<bool> device_mapped{false};
};

struct AttachClientOptions {
  std::string run_dir;               // of the cache service's sockets
  const MemfdArena* pool = nullptr;  // outlives the client
  std::array<std::uint8_t, 32> fingerprint = {};
  std::string model_name;
  CacheLayout layout;
  std::uint64_t block_count = 0;  // of layout.BlockBytes() each, in the pool
  // Of the lease table in the pool; 0 slots: there is none.
  std::uint64_t lease_table_offset = 0;
  std::uint32_t lease_slots = 0;
  // Offered at each attach; whether it was taken is logged, with the reason.
  std::optional<DevicePool> device_pool = {};
  // Of a pool on a device, offered or not; 0: the pool lies in `pool`.
  std::uint64_t device_pool_bytes = 0;
  // Called on the client's thread after each change; must not wait. May be
  // empty.
  std::function<void(const AttachLink&)> on_change;
  std::chrono::milliseconds handshake_deadline = deadlines::kAttach;
  // Longer by kDeviceMap with a device's pool.
  std::chrono::milliseconds announce_deadline = deadlines::kControl;
  std::chrono::milliseconds retry = deadlines::kAttachRetry;
  CredentialCheck check_peer = CheckSameUser;
};

// Owns one thread, which does all waiting; link() and Stop() are thread-safe,
// and link() never waits for the cache service. The destructor stops it.
class AttachClient {
 public:
  // Begins to attach. An error only when the process has no descriptor left.
  static absl::StatusOr<std::unique_ptr<AttachClient>> Start(
      AttachClientOptions options);
  ~AttachClient();

  AttachLink link() const;
  // The open attach; null when there is none.
  std::shared_ptr<const AttachSession> session() const;
  // Detaches, at once whatever the peer does. Idempotent.
  void Stop();

 private:
  // What lives as long as one attach. When its end comes, the staging memory is
  // unmapped as soon as no session() is held, and never used again: I/O of a
  // dead cache service may still write to it.
  struct Attachment {
    UniqueFd socket;
    MappedArena staging;
    Accepted answer;
  };
  enum class Event { kReadable, kTimeout, kStopped };

  AttachClient(AttachClientOptions options, WakeFd wake);

  void Run();
  // How one try ended.
  struct End {
    AttachLink::State state;
    std::string detail;
  };
  // One try, from connect to the peer's end; when it returns, nothing of the
  // peer's is mapped any more.
  End AttachAndWatch();
  absl::StatusOr<std::variant<Attachment, Refusal>> Handshake();
  absl::StatusOr<std::variant<Attachment, Refusal>> ReadAnswer(UniqueFd socket);
  // Why the device's pool is not mapped; empty: it is.
  absl::StatusOr<std::string> Announce(
      const Accepted& answer, const std::shared_ptr<grpc::Channel>& channel);
  // Negative `fd`: waits for the timeout or Stop() alone. No `timeout`: none.
  Event WaitFor(int fd, std::optional<std::chrono::milliseconds> timeout);
  void Publish(AttachLink::State state, const std::string& detail);
  void SetSession(std::shared_ptr<AttachSession> session);

  const AttachClientOptions options_;
  WakeFd wake_;
  mutable std::mutex mutex_;
  AttachLink link_;                         // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  grpc::ClientContext* calling_ = nullptr;  // guarded by mutex_
  std::shared_ptr<AttachSession> session_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_ATTACH_CLIENT_H_
