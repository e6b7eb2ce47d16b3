#include "kernels/cuda/ipc/arena_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/ipc/ipc_memory.h"

extern char** environ;

namespace holdfast::kernels::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kProbeBytes = kDeviceGranule;

enum class Ask : std::uint32_t {
  kImport,  // map `handle`, answer with the sum of its bytes
  kSum,     // sum what is mapped once more
  kExport,  // fill memory, answer with its handle and sum
};
struct Request {
  Ask ask = Ask::kImport;
  std::uint32_t reserved = 0;
  IpcHandle handle;
};
struct Reply {
  std::uint64_t sum = 0;
  IpcHandle handle;
  char problem[256] = {};  // empty: none
};

std::uint64_t Sum(const std::vector<std::uint64_t>& words) {
  std::uint64_t sum = 14695981039346656037u;
  for (const std::uint64_t word : words) sum = (sum ^ word) * 1099511628211u;
  return sum;
}

std::vector<std::uint64_t> Pattern(std::uint64_t seed) {
  std::vector<std::uint64_t> words(kProbeBytes / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    word = seed;
  }
  return words;
}

StatusOr<std::uint64_t> SumOfDevice(const std::byte* memory) {
  std::vector<std::uint64_t> words(kProbeBytes / sizeof(std::uint64_t));
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(words.data(), memory, kProbeBytes, cudaMemcpyDeviceToHost),
      "reading device memory");
  return Sum(words);
}

StatusOr<DeviceMemory> PatternMemory(std::uint64_t seed) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(kProbeBytes, "the arena probe"));
  const auto words = Pattern(seed);
  HF_CUDA_RETURN_IF_ERROR(cudaMemcpy(memory.data(), words.data(), kProbeBytes,
                                     cudaMemcpyHostToDevice),
                          "writing device memory");
  HF_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "writing device memory");
  return memory;
}

Status Errno(const char* what) {
  return Internal(std::string(what) + ": " + std::strerror(errno));
}

// The second process with its socket; killed and reaped when destroyed.
class Peer {
 public:
  static StatusOr<Peer> Start(const std::string& program,
                              milliseconds deadline) {
    Peer peer;
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

  Peer(Peer&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        socket_(std::exchange(other.socket_, -1)),
        until_(other.until_) {}
  Peer& operator=(Peer&&) = delete;
  ~Peer() {
    Kill();
    if (socket_ >= 0) close(socket_);
  }

  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  StatusOr<Reply> Call(const Request& request) {
    if (send(socket_, &request, sizeof(request), MSG_NOSIGNAL) !=
        sizeof(request)) {
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
    Reply reply;
    if (answered < 0 ||
        recv(socket_, &reply, sizeof(reply), 0) != sizeof(reply)) {
      return FailedPrecondition("the probe's second process ended");
    }
    reply.problem[sizeof(reply.problem) - 1] = '\0';
    if (reply.problem[0] != '\0') return FailedPrecondition(reply.problem);
    return reply;
  }

 private:
  Peer() = default;

  pid_t pid_ = 0;
  int socket_ = -1;
  steady_clock::time_point until_;
};

Status ExpectSum(std::uint64_t got, std::uint64_t seed, const char* who) {
  if (got == Sum(Pattern(seed))) return OkStatus();
  return DataLoss(std::string(who) + " read other bytes than were written");
}

// What the second process keeps between requests.
struct Kept {
  std::optional<ImportedMemory> imported;
  DeviceMemory exported;
};

Status Serve(const Request& request, Kept* kept, Reply* reply) {
  if (request.ask == Ask::kExport) {
    HF_ASSIGN_OR_RETURN(kept->exported, PatternMemory(3));
    HF_ASSIGN_OR_RETURN(reply->handle, ExportMemory(kept->exported));
    return OkStatus();
  }
  if (request.ask == Ask::kImport) {
    HF_ASSIGN_OR_RETURN(ImportedMemory memory,
                        ImportedMemory::Open(request.handle));
    kept->imported.emplace(std::move(memory));
  }
  if (!kept->imported.has_value()) return FailedPrecondition("nothing mapped");
  HF_ASSIGN_OR_RETURN(reply->sum, SumOfDevice(kept->imported->data()));
  return OkStatus();
}

}  // namespace

const char* ArenaKindName(ArenaKind kind) {
  return kind == ArenaKind::kCudaIpc ? "cuda_ipc" : "pinned";
}

Status IpcRoundTrip(const std::string& program, milliseconds deadline) {
  HF_ASSIGN_OR_RETURN(const DeviceMemory memory, PatternMemory(1));
  Request request;
  HF_ASSIGN_OR_RETURN(request.handle, ExportMemory(memory));
  HF_ASSIGN_OR_RETURN(Peer peer, Peer::Start(program, deadline));
  HF_ASSIGN_OR_RETURN(const Reply first, peer.Call(request));
  HF_RETURN_IF_ERROR(ExpectSum(first.sum, 1, "the second process"));
  // What the owner writes later is seen through the same mapping.
  const auto words = Pattern(2);
  HF_CUDA_RETURN_IF_ERROR(cudaMemcpy(memory.data(), words.data(), kProbeBytes,
                                     cudaMemcpyHostToDevice),
                          "writing device memory");
  HF_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "writing device memory");
  request.ask = Ask::kSum;
  HF_ASSIGN_OR_RETURN(const Reply second, peer.Call(request));
  return ExpectSum(second.sum, 2, "the second process");
}

ArenaChoice ChooseArena(const std::string& program, milliseconds deadline) {
  const Status status = IpcRoundTrip(program, deadline);
  if (status.ok()) {
    return {ArenaKind::kCudaIpc,
            "a second process mapped device memory and read it"};
  }
  return {ArenaKind::kPinned, "no cuda_ipc: " + status.message()};
}

Status KillImporter(const std::string& program, milliseconds deadline) {
  HF_ASSIGN_OR_RETURN(const DeviceMemory memory, PatternMemory(1));
  Request request;
  HF_ASSIGN_OR_RETURN(request.handle, ExportMemory(memory));
  HF_ASSIGN_OR_RETURN(Peer peer, Peer::Start(program, deadline));
  HF_ASSIGN_OR_RETURN(const Reply reply, peer.Call(request));
  HF_RETURN_IF_ERROR(ExpectSum(reply.sum, 1, "the second process"));
  peer.Kill();
  HF_ASSIGN_OR_RETURN(const std::uint64_t sum, SumOfDevice(memory.data()));
  return ExpectSum(sum, 1, "the owner");
}

Status KillExporter(const std::string& program, milliseconds deadline) {
  HF_ASSIGN_OR_RETURN(Peer peer, Peer::Start(program, deadline));
  Request request;
  request.ask = Ask::kExport;
  HF_ASSIGN_OR_RETURN(const Reply reply, peer.Call(request));
  HF_ASSIGN_OR_RETURN(const ImportedMemory memory,
                      ImportedMemory::Open(reply.handle));
  peer.Kill();
  HF_ASSIGN_OR_RETURN(const std::uint64_t sum, SumOfDevice(memory.data()));
  return ExpectSum(sum, 3, "the importer");
}

int RunIpcPeer(int socket) {
  Kept kept;
  Request request;
  while (recv(socket, &request, sizeof(request), 0) == sizeof(request)) {
    Reply reply;
    const Status status = Serve(request, &kept, &reply);
    if (!status.ok()) {
      std::strncpy(reply.problem, status.message().c_str(),
                   sizeof(reply.problem) - 1);
    }
    if (send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply)) {
      break;
    }
  }
  return 0;
}

Status RegisterSharedMemory() {
  const int fd = memfd_create("holdfast-probe", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kProbeBytes) != 0) {
    return Errno("a memfd for the probe");
  }
  void* const memory = mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return Errno("mapping a memfd for the probe");
  Status status =
      ToStatus(cudaHostRegister(memory, kProbeBytes, cudaHostRegisterDefault),
               "pinning shared memory");
  if (status.ok()) {
    const auto device = PatternMemory(4);
    status = device.ok()
                 ? ToStatus(cudaMemcpy(memory, device->data(), kProbeBytes,
                                       cudaMemcpyDeviceToHost),
                            "copying to pinned shared memory")
                 : device.status();
    const auto words = Pattern(4);
    if (status.ok() && std::memcmp(memory, words.data(), kProbeBytes) != 0) {
      status = DataLoss("pinned shared memory got other bytes");
    }
    (void)cudaHostUnregister(memory);
  }
  munmap(memory, kProbeBytes);
  return status;
}

}  // namespace holdfast::kernels::cuda
