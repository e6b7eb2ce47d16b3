// Memory and events of other processes.
#include <unistd.h>

#include <cstring>

#include "tests/cuda_emulation/fake_state.h"

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  HF_ENTER("cudaIpcGetMemHandle");
  return runtime.Answer(runtime.Export(handle, pointer));
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle,
                                 unsigned flags) {
  HF_ENTER("cudaIpcOpenMemHandle");
  if (flags != cudaIpcMemLazyEnablePeerAccess) {
    return runtime.Answer(cudaErrorInvalidValue);
  }
  return runtime.Answer(runtime.Open(pointer, handle));
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  HF_ENTER("cudaIpcCloseMemHandle");
  return runtime.Answer(runtime.Close(pointer));
}

namespace {

// An event's handle names the process it is of, and whether it has come there:
// at once, or never.
struct EventHandle {
  char magic[8];
  int pid;
  bool comes;
};
static_assert(sizeof(EventHandle) <= sizeof(cudaIpcEventHandle_t));

}  // namespace

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle,
                                  cudaEvent_t event) {
  HF_ENTER("cudaIpcGetEventHandle");
  if (!runtime.device.ipc_events) return runtime.Answer(cudaErrorNotSupported);
  constexpr unsigned kNeeded = cudaEventInterprocess | cudaEventDisableTiming;
  const auto flags = runtime.event_flags.find(event);
  if (flags == runtime.event_flags.end() ||
      (flags->second & kNeeded) != kNeeded) {
    return runtime.Answer(cudaErrorInvalidResourceHandle);
  }
  EventHandle bytes = {};
  std::memcpy(bytes.magic, "fakeevt", 8);
  bytes.pid = getpid();
  bytes.comes = runtime.device.events_come;
  std::memset(handle->reserved, 0, sizeof(handle->reserved));
  std::memcpy(handle->reserved, &bytes, sizeof(bytes));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event,
                                   cudaIpcEventHandle_t handle) {
  HF_ENTER("cudaIpcOpenEventHandle");
  EventHandle bytes;
  std::memcpy(&bytes, handle.reserved, sizeof(bytes));
  if (std::memcmp(bytes.magic, "fakeevt", 8) != 0) {
    return runtime.Answer(cudaErrorInvalidResourceHandle);
  }
  if (bytes.pid == getpid())
    return runtime.Answer(cudaErrorDeviceUninitialized);
  *event = reinterpret_cast<cudaEvent_t>(new char);
  if (!bytes.comes) runtime.never_come.insert(*event);
  return cudaSuccess;
}
