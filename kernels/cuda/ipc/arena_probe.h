// Which arena kind this machine allows, found by doing it once: this program
// starts itself as a second process, which maps device memory of this one and
// reads it back. Every wait has a deadline; a peer that does not answer is
// killed.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_ARENA_PROBE_H_
#define HOLDFAST_KERNELS_CUDA_IPC_ARENA_PROBE_H_

#include <chrono>
#include <functional>
#include <string>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

enum class ArenaKind {
  kCudaIpc,  // the cache service maps the pool
  kPinned,   // the engine copies rows to and from staging
};
const char* ArenaKindName(ArenaKind kind);

struct ArenaChoice {
  ArenaKind kind = ArenaKind::kPinned;
  std::string reason;  // why, or why not the better one
};

// The flag with which the second process is told its socket:
// kIpcPeerFlag=<descriptor>. main() passes such a call on to RunIpcPeer.
inline constexpr char kIpcPeerFlag[] = "--ipc-peer";

// What the round trip failed of; OK: it worked. `program`: this one's path.
Status IpcRoundTrip(const std::string& program,
                    std::chrono::milliseconds deadline);
ArenaChoice ChooseArena(const std::string& program,
                        std::chrono::milliseconds deadline);

// Like the round trip, but one side is killed with the memory mapped, and the
// other must go on: an importer still reads what it mapped, an exporter still
// uses and frees its memory.
Status KillImporter(const std::string& program,
                    std::chrono::milliseconds deadline);
// `at` (may be empty) is told when the exporter is gone and when its memory is.
Status KillExporter(const std::string& program,
                    std::chrono::milliseconds deadline,
                    const std::function<void(const char* when)>& at = {});

// A round trip of memory exported as a descriptor (cuMemCreate), and of an
// event that the second process asks about for at most two seconds. Nothing
// depends on either: for who wants to know.
Status VmmRoundTrip(const std::string& program,
                    std::chrono::milliseconds deadline);
Status EventRoundTrip(const std::string& program,
                      std::chrono::milliseconds deadline);

// The second process: serves one socket until it closes. An exit status.
int RunIpcPeer(int socket);

// Whether ordinary shared memory can be pinned for the device: registers a
// memfd and copies through it.
Status RegisterSharedMemory();

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_ARENA_PROBE_H_
