// The cache service's side of the attach (PROTOCOL.md).
#ifndef HOLDFAST_SHARED_ATTACH_ATTACH_SERVER_H_
#define HOLDFAST_SHARED_ATTACH_ATTACH_SERVER_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/packet_socket.h"
#include "shared/attach/protocol.h"
#include "shared/attach/wake_fd.h"
#include "shared/deadlines.h"

namespace holdfast::attach {

struct AttachServerOptions {
  std::string socket_path;
  // Sent to the engine; outlives the server.
  const MemfdArena* staging = nullptr;
  std::uint32_t staging_slots = 0;  // divides the staging's bytes
  std::chrono::milliseconds handshake_deadline = deadlines::kAttach;
  // Connections without a hello yet. One more pushes the oldest out, so that
  // silent peers keep no engine waiting.
  std::size_t max_half_open = 16;
  CredentialCheck check_peer = CheckSameUser;
  // Called on the server's thread when an engine is detached; must not wait.
  // May be empty.
  std::function<void(std::uint64_t epoch)> on_detach = {};
};

// The attached engine.
struct AttachedPeer {
  std::uint32_t pid = 0;
  std::uint64_t epoch = 0;
  std::array<std::uint8_t, 32> fingerprint = {};
  std::uint64_t pool_bytes = 0;
  std::chrono::steady_clock::time_point since;
};

struct AttachServerState {
  std::optional<AttachedPeer> peer;
  bool draining = false;
  std::uint64_t attaches = 0;
  std::uint64_t detaches = 0;
  std::array<std::uint64_t, kLastRefusalReason + 1> refusals = {};  // by reason
  std::uint64_t AllRefusals() const;
};

// Listens, attaches one engine at a time, watches it. All sockets belong to one
// thread of its own, which never waits for a peer; every public call is
// thread-safe and short. The destructor stops it.
class AttachServer {
 public:
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(
      AttachServerOptions options);
  ~AttachServer();

  AttachServerState state() const;

  // The attached engine's pool, mapped for reading; null for another epoch. I/O
  // that reads it holds it: then it stays mapped after the engine has gone.
  std::shared_ptr<const MappedArena> pool(std::uint64_t epoch) const;

  // From now on every hello is refused as draining; the attached engine stays.
  void RefuseNew();
  // True when no engine is attached, waiting for that at most `deadline`.
  bool WaitDetached(std::chrono::milliseconds deadline) const;
  // True when the server's thread goes round within `deadline`: for a watchdog
  // that shall see real progress.
  bool Responds(std::chrono::milliseconds deadline);
  // Closes every connection and removes the socket. Idempotent.
  void Stop();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A connection whose hello has not come yet.
  struct HalfOpen {
    UniqueFd socket;
    Credentials peer;
    absl::Status credentials;  // of the check; told with the refusal
    TimePoint deadline;
  };
  // What the attached engine's life holds.
  struct Attachment {
    UniqueFd socket;
  };
  struct Admitted {
    Hello hello;
    MappedArena pool;
  };

  AttachServer(AttachServerOptions options, UniqueFd listener, WakeFd wake);

  void Run();
  // Waits for the next event; false when the server stops.
  bool PollOnce();
  void Accept();
  void DropLate(TimePoint now);
  void WatchAttached();
  // Decides on the hello, or keeps the connection while there is none.
  void ReadHello(HalfOpen connection);
  void Keep(HalfOpen connection);
  // The rules, in the order in which they are told.
  std::variant<Admitted, Refusal> Judge(const HalfOpen& connection,
                                        const Packet& packet) const;
  void Attach(HalfOpen connection, Admitted admitted);
  void Refuse(const HalfOpen& connection, const Refusal& refusal);
  void Detach(const char* why);
  int PollTimeout(TimePoint now) const;

  const AttachServerOptions options_;
  // Of the server's thread.
  UniqueFd listener_;
  std::vector<HalfOpen> half_open_;  // oldest first
  std::optional<Attachment> attachment_;
  TimePoint accept_after_;  // no accept before: the process had no descriptor
  std::pair<std::uint32_t, RefusalReason> last_logged_refusal_ = {};

  WakeFd wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  AttachServerState state_;                  // guarded by mutex_
  std::shared_ptr<const MappedArena> pool_;  // guarded by mutex_
  std::uint64_t probes_asked_ = 0;           // guarded by mutex_
  std::uint64_t probes_seen_ = 0;            // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::thread thread_;
};

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_ATTACH_SERVER_H_
