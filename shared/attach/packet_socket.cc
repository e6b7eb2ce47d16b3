#include "shared/attach/packet_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "shared/attach/protocol.h"

namespace holdfast::attach {
namespace {

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return absl::ErrnoToStatus(errno, "attach socket");
  return fd;
}

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        fmt::format("socket path {}: must have 1 to {} bytes", path,
                    sizeof(address.sun_path) - 1));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

// Takes the descriptors out of the control data.
std::vector<UniqueFd> TakeDescriptors(msghdr& message) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
      continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  return taken;
}

}  // namespace

absl::StatusOr<UniqueFd> Listen(const std::string& path, int backlog) {
  absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd;
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, fmt::format("remove old {}", path));
  if (bind(fd->get(), reinterpret_cast<sockaddr*>(&*address),
           sizeof(*address)) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("bind {}", path));
  if (listen(fd->get(), backlog) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("listen on {}", path));
  return fd;
}

absl::StatusOr<UniqueFd> Connect(const std::string& path) {
  absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd;
  // Never in progress on a Unix socket: done, or EAGAIN for a full queue.
  if (connect(fd->get(), reinterpret_cast<sockaddr*>(&*address),
              sizeof(*address)) != 0) {
    return absl::UnavailableError(
        fmt::format("connect {}: {}", path, std::strerror(errno)));
  }
  return fd;
}

absl::StatusOr<Credentials> PeerOf(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return absl::ErrnoToStatus(errno, "credentials of the attach peer");
  return Credentials{.pid = credentials.pid, .uid = credentials.uid};
}

absl::Status CheckSameUser(const Credentials& peer) {
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format(
      "peer pid {} runs as uid {}, not {}", peer.pid, peer.uid, geteuid()));
}

absl::Status SendPacket(int fd, std::span<const std::byte> bytes,
                        int descriptor) {
  iovec part = {.iov_base = const_cast<std::byte*>(bytes.data()),
                .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  while (true) {
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
      return absl::OkStatus();
    if (errno == EINTR) continue;
    return absl::UnavailableError(
        fmt::format("send to the attach peer: {}", std::strerror(errno)));
  }
}

absl::StatusOr<std::optional<Packet>> ReceivePacket(int fd) {
  Packet packet;
  packet.bytes.resize(kMaxMessageBytes);
  iovec part = {.iov_base = packet.bytes.data(),
                .iov_len = packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  while (true) {
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received =
        recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
      return absl::UnavailableError(fmt::format(
          "receive from the attach peer: {}", std::strerror(errno)));
    }
    packet.bytes.resize(static_cast<std::size_t>(received));
    packet.descriptors = TakeDescriptors(message);
    packet.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    return packet;
  }
}

}  // namespace holdfast::attach
