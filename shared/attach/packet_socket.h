// Packets with descriptors over a Unix SEQPACKET socket. Nothing here waits:
// every descriptor is non-blocking.
#ifndef HOLDFAST_SHARED_ATTACH_PACKET_SOCKET_H_
#define HOLDFAST_SHARED_ATTACH_PACKET_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/arena/unique_fd.h"

namespace holdfast::attach {

// Binds and listens; a socket file left by a process that is gone is replaced,
// so the caller holds a lock that says no other process serves `path`.
absl::StatusOr<UniqueFd> Listen(const std::string& path, int backlog);

// The connected socket. UNAVAILABLE when nobody listens, or too many wait.
absl::StatusOr<UniqueFd> Connect(const std::string& path);

// The peer as the kernel knows it: who connected, or who listens.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
absl::StatusOr<Credentials> PeerOf(int fd);

// Says whether a peer may attach.
using CredentialCheck = std::function<absl::Status(const Credentials&)>;
// The check in use: the peer runs as our own effective user.
absl::Status CheckSameUser(const Credentials& peer);

// Sends one packet, with `descriptor` when it is not negative. UNAVAILABLE when
// the peer is gone or takes nothing.
absl::Status SendPacket(int fd, std::span<const std::byte> bytes,
                        int descriptor);

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;  // all that came are owned, so none leaks
  bool truncated = false;  // it was longer, or carried more, than we take
  // The peer has closed. (An empty packet reads the same, and is as good as.)
  bool Closed() const { return bytes.empty() && descriptors.empty(); }
};

// The next packet; nothing when none has come yet.
absl::StatusOr<std::optional<Packet>> ReceivePacket(int fd);

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_PACKET_SOCKET_H_
