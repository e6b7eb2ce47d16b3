// The probe's second process: this program, started again, which maps what it
// is sent and answers with what it read there.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_PROBE_PEER_H_
#define HOLDFAST_KERNELS_CUDA_IPC_PROBE_PEER_H_

#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "kernels/cuda/ipc/ipc_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

enum class Ask : std::uint32_t {
  kImport,    // map `handle`, answer with the sum of its bytes
  kImportFd,  // the same of the descriptor that comes along
  kSum,       // sum what is mapped once more
  kExport,    // fill memory, answer with its handle and sum
  kEvent,     // open `event` and ask, for at most two seconds, if it has come
};
struct ProbeRequest {
  Ask ask = Ask::kImport;
  std::uint32_t reserved = 0;
  IpcHandle handle;
  cudaIpcEventHandle_t event = {};
};
struct ProbeReply {
  std::uint64_t sum = 0;
  IpcHandle handle;
  char problem[256] = {};  // empty: none
};

// Killed and reaped when destroyed. Every wait for an answer ends at the
// deadline, the wait for its end after two seconds.
class ProbePeer {
 public:
  static StatusOr<ProbePeer> Start(const std::string& program,
                                   std::chrono::milliseconds deadline);
  ProbePeer(ProbePeer&& other) noexcept;
  ProbePeer& operator=(ProbePeer&&) = delete;
  ~ProbePeer();

  // `fd`, when there is one, goes along; it stays the caller's.
  StatusOr<ProbeReply> Call(const ProbeRequest& request, int fd = -1);
  // Kills and reaps it. An error: it did not end (in a driver's call that
  // hangs, a process does not) and is left behind.
  Status Kill();
  pid_t pid() const { return pid_; }  // 0 once killed

 private:
  ProbePeer() = default;

  pid_t pid_ = 0;
  int socket_ = -1;
  std::chrono::steady_clock::time_point until_;
};

// The second process itself: serves one socket until it closes. An exit status.
int ServeProbe(int socket);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_PROBE_PEER_H_
