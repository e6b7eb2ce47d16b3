#include "kernels/cuda/ipc/vmm_memory.h"

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/driver_call.h"

namespace holdfast::kernels::cuda {

struct VmmCalls {
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

namespace {

StatusOr<VmmCalls> FindCalls() {
  VmmCalls calls;
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemCreate", &calls.create));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemRelease", &calls.release));
  HF_RETURN_IF_ERROR(
      FindDriverCall("cuMemExportToShareableHandle", &calls.export_handle));
  HF_RETURN_IF_ERROR(
      FindDriverCall("cuMemImportFromShareableHandle", &calls.import_handle));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemAddressReserve", &calls.reserve));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemAddressFree", &calls.free));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemMap", &calls.map));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemUnmap", &calls.unmap));
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemSetAccess", &calls.set_access));
  return calls;
}

// Found once; the same for the whole process.
StatusOr<const VmmCalls*> Calls() {
  // A context must be current before the driver is called.
  HF_CUDA_RETURN_IF_ERROR(cudaFree(nullptr), "a CUDA context");
  static const StatusOr<VmmCalls> calls = FindCalls();
  if (!calls.ok()) return calls.status();
  return &*calls;
}

CUmemLocation Device0() {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = 0;
  return location;
}

}  // namespace

StatusOr<VmmMemory> VmmMemory::Create(std::size_t bytes) {
  HF_ASSIGN_OR_RETURN(const VmmCalls* calls, Calls());
  VmmMemory memory(*calls);
  memory.bytes_ = bytes;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = Device0();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  HF_RETURN_IF_ERROR(DriverStatus(
      calls->create(&memory.handle_, bytes, &properties, 0), "cuMemCreate"));
  memory.created_ = true;
  HF_RETURN_IF_ERROR(memory.Map());
  return memory;
}

StatusOr<VmmMemory> VmmMemory::Import(int fd, std::size_t bytes) {
  HF_ASSIGN_OR_RETURN(const VmmCalls* calls, Calls());
  VmmMemory memory(*calls);
  memory.bytes_ = bytes;
  HF_RETURN_IF_ERROR(
      DriverStatus(calls->import_handle(
                       &memory.handle_,
                       reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "cuMemImportFromShareableHandle"));
  memory.created_ = true;
  HF_RETURN_IF_ERROR(memory.Map());
  return memory;
}

Status VmmMemory::Map() {
  HF_RETURN_IF_ERROR(DriverStatus(calls_->reserve(&address_, bytes_, 0, 0, 0),
                                  "cuMemAddressReserve"));
  HF_RETURN_IF_ERROR(
      DriverStatus(calls_->map(address_, bytes_, 0, handle_, 0), "cuMemMap"));
  mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = Device0();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return DriverStatus(calls_->set_access(address_, bytes_, &access, 1),
                      "cuMemSetAccess");
}

StatusOr<int> VmmMemory::ExportFd() const {
  int fd = -1;
  HF_RETURN_IF_ERROR(DriverStatus(
      calls_->export_handle(&fd, handle_,
                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  return fd;
}

VmmMemory::VmmMemory(VmmMemory&& other) noexcept
    : calls_(other.calls_),
      handle_(other.handle_),
      created_(std::exchange(other.created_, false)),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_),
      mapped_(std::exchange(other.mapped_, false)) {}

VmmMemory::~VmmMemory() {
  if (mapped_) (void)calls_->unmap(address_, bytes_);
  if (address_ != 0) (void)calls_->free(address_, bytes_);
  if (created_) (void)calls_->release(handle_);
}

}  // namespace holdfast::kernels::cuda
