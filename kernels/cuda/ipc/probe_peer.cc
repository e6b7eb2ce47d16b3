#include "kernels/cuda/ipc/probe_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/imported_pool.h"
#include "kernels/cuda/ipc/probe_memory.h"
#include "kernels/cuda/ipc/vmm_memory.h"

extern char** environ;

namespace holdfast::kernels::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kEventWait{2};
constexpr milliseconds kPoll{1};
// A killed process is gone at once, unless it is inside of a driver's call.
constexpr std::chrono::seconds kEndWait{2};

Status Errno(const char* what) {
  return Internal(std::string(what) + ": " + std::strerror(errno));
}

// A packet and, with a descriptor, room for one.
struct Packet {
  Packet(void* data, std::size_t bytes) : part{data, bytes} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
  }
  void AddRoom() {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  void AddFd(int fd) {
    AddRoom();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  int Fd() {
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
  }

  iovec part;
  msghdr message = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

// What the second process keeps between requests.
struct Mapped {
  std::optional<ImportedPool> imported;
  std::optional<VmmMemory> imported_fd;
  DeviceMemory exported;

  StatusOr<std::uint64_t> Sum() {
    if (imported.has_value()) return SumOfPool(*imported);
    if (imported_fd.has_value()) return SumOfDevice(imported_fd->data());
    return FailedPrecondition("nothing mapped");
  }
};

Status WaitForEvent(const cudaIpcEventHandle_t& handle) {
  cudaEvent_t opened = nullptr;
  HF_CUDA_RETURN_IF_ERROR(cudaIpcOpenEventHandle(&opened, handle),
                          "opening an event");
  const Event event(opened);
  const auto until = steady_clock::now() + kEventWait;
  for (;;) {
    const cudaError_t state = cudaEventQuery(event.get());
    if (state != cudaErrorNotReady) return ToStatus(state, "asking an event");
    if (steady_clock::now() >= until) {
      return FailedPrecondition("an event of the other process did not come");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Status Serve(const ProbeRequest& request, int fd, Mapped* mapped,
             ProbeReply* reply) {
  switch (request.ask) {
    case Ask::kExport: {
      HF_ASSIGN_OR_RETURN(mapped->exported, PatternMemory(3));
      HF_ASSIGN_OR_RETURN(reply->handle, ExportMemory(mapped->exported));
      return OkStatus();
    }
    case Ask::kEvent:
      return WaitForEvent(request.event);
    case Ask::kImport: {
      HF_ASSIGN_OR_RETURN(ImportedPool pool,
                          ImportedPool::Open(request.handle));
      mapped->imported.emplace(std::move(pool));
      break;
    }
    case Ask::kImportFd: {
      HF_ASSIGN_OR_RETURN(VmmMemory memory, VmmMemory::Import(fd, kProbeBytes));
      mapped->imported_fd.emplace(std::move(memory));
      break;
    }
    case Ask::kSum:
      break;
  }
  HF_ASSIGN_OR_RETURN(reply->sum, mapped->Sum());
  return OkStatus();
}

}  // namespace

StatusOr<ProbePeer> ProbePeer::Start(const std::string& program,
                                     milliseconds deadline) {
  ProbePeer peer;
  peer.until_ = steady_clock::now() + deadline;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) {
    return Errno("a socket for the probe's second process");
  }
  peer.socket_ = sockets[0];
  (void)fcntl(sockets[0], F_SETFD, FD_CLOEXEC);
  std::string flag =
      std::string(kIpcPeerFlag) + "=" + std::to_string(sockets[1]);
  std::string name = program;
  char* arguments[] = {name.data(), flag.data(), nullptr};
  // Not fork: a process that uses CUDA cannot go on in a fork.
  const int error = posix_spawn(&peer.pid_, program.c_str(), nullptr, nullptr,
                                arguments, environ);
  close(sockets[1]);
  if (error != 0) {
    peer.pid_ = 0;
    return Internal("starting " + program + ": " + std::strerror(error));
  }
  return peer;
}

ProbePeer::ProbePeer(ProbePeer&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      socket_(std::exchange(other.socket_, -1)),
      until_(other.until_) {}

ProbePeer::~ProbePeer() {
  (void)Kill();
  if (socket_ >= 0) close(socket_);
}

Status ProbePeer::Kill() {
  if (pid_ == 0) return OkStatus();
  const pid_t pid = std::exchange(pid_, 0);
  kill(pid, SIGKILL);
  const auto until = steady_clock::now() + kEndWait;
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (steady_clock::now() >= until) {
      return FailedPrecondition("the probe's second process " +
                                std::to_string(pid) +
                                " was killed and did not end");
    }
    std::this_thread::sleep_for(kPoll);
  }
  return OkStatus();
}

StatusOr<ProbeReply> ProbePeer::Call(const ProbeRequest& request, int fd) {
  ProbeRequest copy = request;
  Packet packet(&copy, sizeof(copy));
  if (fd >= 0) packet.AddFd(fd);
  if (sendmsg(socket_, &packet.message, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      sizeof(copy)) {
    return Errno("the probe's second process");
  }
  const auto left =
      std::chrono::duration_cast<milliseconds>(until_ - steady_clock::now());
  pollfd ready = {socket_, POLLIN, 0};
  const int answered = poll(
      &ready, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
  if (answered == 0) {
    return FailedPrecondition(
        "the probe's second process did not answer in time");
  }
  ProbeReply reply;
  if (answered < 0 ||
      recv(socket_, &reply, sizeof(reply), 0) != sizeof(reply)) {
    return FailedPrecondition("the probe's second process ended");
  }
  reply.problem[sizeof(reply.problem) - 1] = '\0';
  if (reply.problem[0] != '\0') return FailedPrecondition(reply.problem);
  return reply;
}

int ServeProbe(int socket) {
  Mapped mapped;
  ProbeRequest request;
  for (;;) {
    Packet packet(&request, sizeof(request));
    packet.AddRoom();
    if (recvmsg(socket, &packet.message, MSG_CMSG_CLOEXEC) != sizeof(request)) {
      return 0;
    }
    const int fd = packet.Fd();
    ProbeReply reply;
    const Status status = Serve(request, fd, &mapped, &reply);
    if (fd >= 0) close(fd);
    if (!status.ok()) {
      std::strncpy(reply.problem, status.message().c_str(),
                   sizeof(reply.problem) - 1);
    }
    if (send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply)) {
      return 0;
    }
  }
}

}  // namespace holdfast::kernels::cuda
