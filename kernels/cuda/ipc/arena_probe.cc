#include "kernels/cuda/ipc/arena_probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/cuda/ipc/imported_pool.h"
#include "kernels/cuda/ipc/ipc_memory.h"
#include "kernels/cuda/ipc/probe_memory.h"
#include "kernels/cuda/ipc/probe_peer.h"
#include "kernels/cuda/ipc/vmm_memory.h"

namespace holdfast::kernels::cuda {
namespace {

using std::chrono::milliseconds;

Status Errno(const char* what) {
  return Internal(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

const char* ArenaKindName(ArenaKind kind) {
  return kind == ArenaKind::kCudaIpc ? "cuda_ipc" : "pinned";
}

Status IpcRoundTrip(const std::string& program, milliseconds deadline) {
  HF_ASSIGN_OR_RETURN(const DeviceMemory memory, PatternMemory(1));
  ProbeRequest request;
  HF_ASSIGN_OR_RETURN(request.handle, ExportMemory(memory));
  HF_ASSIGN_OR_RETURN(ProbePeer peer, ProbePeer::Start(program, deadline));
  HF_ASSIGN_OR_RETURN(const ProbeReply first, peer.Call(request));
  HF_RETURN_IF_ERROR(ExpectSum(first.sum, 1, "the second process"));
  // What the owner writes later is seen through the same mapping.
  HF_RETURN_IF_ERROR(WritePattern(2, memory.data()));
  request.ask = Ask::kSum;
  HF_ASSIGN_OR_RETURN(const ProbeReply second, peer.Call(request));
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
  ProbeRequest request;
  HF_ASSIGN_OR_RETURN(request.handle, ExportMemory(memory));
  HF_ASSIGN_OR_RETURN(ProbePeer peer, ProbePeer::Start(program, deadline));
  HF_ASSIGN_OR_RETURN(const ProbeReply reply, peer.Call(request));
  HF_RETURN_IF_ERROR(ExpectSum(reply.sum, 1, "the second process"));
  HF_RETURN_IF_ERROR(peer.Kill());
  HF_ASSIGN_OR_RETURN(const std::uint64_t sum, SumOfDevice(memory.data()));
  return ExpectSum(sum, 1, "the owner");
}

Status KillExporter(const std::string& program, milliseconds deadline,
                    const std::function<void(const char* when)>& at) {
  HF_ASSIGN_OR_RETURN(ProbePeer peer, ProbePeer::Start(program, deadline));
  ProbeRequest request;
  request.ask = Ask::kExport;
  HF_ASSIGN_OR_RETURN(const ProbeReply reply, peer.Call(request));
  {
    HF_ASSIGN_OR_RETURN(ImportedPool pool, ImportedPool::Open(reply.handle));
    HF_RETURN_IF_ERROR(peer.Kill());
    if (at) at("killed");
    HF_ASSIGN_OR_RETURN(const std::uint64_t sum, SumOfPool(pool));
    HF_RETURN_IF_ERROR(ExpectSum(sum, 3, "the importer"));
  }
  if (at) at("closed");
  return OkStatus();
}

Status VmmRoundTrip(const std::string& program, milliseconds deadline) {
  HF_ASSIGN_OR_RETURN(const VmmMemory memory, VmmMemory::Create(kProbeBytes));
  HF_RETURN_IF_ERROR(WritePattern(5, memory.data()));
  HF_ASSIGN_OR_RETURN(const int fd, memory.ExportFd());
  const auto trip = [&]() -> Status {
    HF_ASSIGN_OR_RETURN(ProbePeer peer, ProbePeer::Start(program, deadline));
    ProbeRequest request;
    request.ask = Ask::kImportFd;
    HF_ASSIGN_OR_RETURN(const ProbeReply reply, peer.Call(request, fd));
    return ExpectSum(reply.sum, 5, "the second process");
  };
  const Status status = trip();
  close(fd);
  return status;
}

Status EventRoundTrip(const std::string& program, milliseconds deadline) {
  cudaEvent_t made = nullptr;
  HF_CUDA_RETURN_IF_ERROR(
      cudaEventCreateWithFlags(&made,
                               cudaEventDisableTiming | cudaEventInterprocess),
      "an event for two processes");
  const Event event(made);
  HF_ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  ProbeRequest request;
  request.ask = Ask::kEvent;
  HF_CUDA_RETURN_IF_ERROR(cudaIpcGetEventHandle(&request.event, event.get()),
                          "exporting an event");
  HF_CUDA_RETURN_IF_ERROR(cudaEventRecord(event.get(), stream.get()),
                          "recording an event");
  HF_ASSIGN_OR_RETURN(ProbePeer peer, ProbePeer::Start(program, deadline));
  return peer.Call(request).status();
}

int RunIpcPeer(int socket) { return ServeProbe(socket); }

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
