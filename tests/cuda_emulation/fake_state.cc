#include "tests/cuda_emulation/fake_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace holdfast::emulation {

char* Runtime::NewSegment(std::size_t size, bool small) {
  Segment segment;
  segment.fd = memfd_create("fake-device", MFD_CLOEXEC);
  segment.bytes = size;
  segment.shared = small;
  if (segment.fd < 0 || ftruncate(segment.fd, static_cast<off_t>(size)) != 0) {
    return nullptr;
  }
  void* base =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
  if (base == MAP_FAILED) return nullptr;
  segments[static_cast<char*>(base)] = segment;
  return static_cast<char*>(base);
}

cudaError_t Runtime::Allocate(void** pointer, std::size_t size) {
  if (size == 0) {
    *pointer = nullptr;
    return cudaSuccess;
  }
  const std::size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  Settle();
  if (rounded > device.total_bytes - std::min(device.total_bytes, bytes)) {
    return cudaErrorMemoryAllocation;
  }
  char* base = nullptr;
  if (rounded < kSegmentBytes) {
    for (auto& [start, segment] : segments) {
      if (segment.shared && segment.bytes - segment.used >= rounded) {
        base = start;
      }
    }
  }
  if (base == nullptr) {
    base =
        NewSegment(std::max(rounded, kSegmentBytes), rounded < kSegmentBytes);
  }
  if (base == nullptr) return cudaErrorMemoryAllocation;
  Segment& segment = segments[base];
  char* start = base + segment.used;
  segment.used += rounded;
  ++segment.allocations;
  allocations[start] = rounded;
  bytes += rounded;
  std::memset(start, kFreshMemory, rounded);
  *pointer = start;
  return cudaSuccess;
}

cudaError_t Runtime::Free(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto it = allocations.find(static_cast<char*>(pointer));
  if (it == allocations.end()) return cudaErrorInvalidValue;
  const std::size_t freed_bytes = it->second;
  allocations.erase(it);
  const auto at = SegmentOf(pointer);
  Segment& segment = at->second;
  if (--segment.allocations > 0) {
    bytes -= freed_bytes;
    return cudaSuccess;
  }
  // The pages go when the last process that has them mapped lets go.
  if (segment.exported) {
    std::memset(at->first, kFreedMemory, segment.bytes);
  }
  // The addresses stay taken, so that a late access is seen.
  (void)mmap(at->first, segment.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed[at->first] = segment.bytes;
  lingering.push_back({segment.fd, freed_bytes});
  segments.erase(at);
  Settle();
  return cudaSuccess;
}

void Runtime::Settle() {
  std::erase_if(lingering, [this](const Lingering& memory) {
    if (flock(memory.fd, LOCK_EX | LOCK_NB) != 0) return false;
    close(memory.fd);
    bytes -= memory.bytes;
    return true;
  });
}

cudaError_t Runtime::Open(void** pointer, const cudaIpcMemHandle_t& handle) {
  if (!device.ipc) return cudaErrorNotSupported;
  HandleBytes bytes_of;
  std::memcpy(&bytes_of, handle.reserved, sizeof(bytes_of));
  if (std::memcmp(bytes_of.magic, "fakeipc", 8) != 0) {
    return cudaErrorInvalidValue;
  }
  if (bytes_of.pid == getpid()) return cudaErrorDeviceUninitialized;
  if (bytes_of.uuid_byte != device.uuid_byte) return cudaErrorInvalidDevice;
  const std::tuple exporter{bytes_of.pid, bytes_of.fd};
  for (auto& [base, open] : opened) {
    if (open.exporter == exporter) {
      ++open.references;
      *pointer = base;
      return cudaSuccess;
    }
  }
  const std::string path = "/proc/" + std::to_string(bytes_of.pid) + "/fd/" +
                           std::to_string(bytes_of.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return cudaErrorMapBufferObjectFailed;
  void* base =
      mmap(nullptr, bytes_of.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED || flock(fd, LOCK_SH | LOCK_NB) != 0) {
    close(fd);
    return cudaErrorMapBufferObjectFailed;
  }
  opened[static_cast<char*>(base)] = {exporter, bytes_of.bytes, 1, fd};
  *pointer = base;
  return cudaSuccess;
}

cudaError_t Runtime::Export(cudaIpcMemHandle_t* handle, void* pointer) {
  if (!device.ipc) return cudaErrorNotSupported;
  const auto segment = SegmentOf(pointer);
  if (segment == segments.end()) return cudaErrorInvalidValue;
  segment->second.exported = true;
  HandleBytes bytes_of = {};
  std::memcpy(bytes_of.magic, "fakeipc", 8);
  bytes_of.pid = getpid();
  bytes_of.fd = segment->second.fd;
  bytes_of.bytes = segment->second.bytes;
  bytes_of.uuid_byte = device.uuid_byte;
  std::memset(handle->reserved, 0, sizeof(handle->reserved));
  std::memcpy(handle->reserved, &bytes_of, sizeof(bytes_of));
  return cudaSuccess;
}

cudaError_t Runtime::Close(void* pointer) {
  const auto it = opened.find(static_cast<char*>(pointer));
  if (it == opened.end()) return cudaErrorInvalidValue;
  if (--it->second.references > 0) return cudaSuccess;
  munmap(it->first, it->second.bytes);
  close(it->second.fd);
  opened.erase(it);
  return cudaSuccess;
}

void ResetFakeRuntime(const FakeDevice& device) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  while (!runtime.allocations.empty()) {
    (void)runtime.Free(runtime.allocations.begin()->first);
  }
  while (!runtime.opened.empty()) {
    (void)runtime.Close(runtime.opened.begin()->first);
  }
  for (const Lingering& memory : runtime.lingering) close(memory.fd);
  runtime.lingering.clear();
  for (const auto& [start, size] : runtime.freed) munmap(start, size);
  runtime.freed.clear();
  runtime.bytes = 0;
  for (const auto& [pointer, bytes] : runtime.pinned) std::free(pointer);
  runtime.pinned.clear();
  runtime.pending.clear();
  runtime.arriving.clear();
  runtime.registered.clear();
  runtime.failures.clear();
  runtime.sticky = runtime.last = cudaSuccess;
  runtime.device = device;
}

void FailCall(const std::string& function, int after, cudaError_t error) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.failures[function] = {after, error};
}

namespace {

struct Held {
  std::mutex mutex;
  std::condition_variable changed;
  std::string wanted;  // guarded by mutex, like all below
  bool holding = false;
};

Held& TheHeld() {
  static Held held;
  return held;
}

}  // namespace

void HoldCall(const std::string& function) {
  Held& held = TheHeld();
  const std::lock_guard lock(held.mutex);
  held.wanted = function;
}

void ReleaseCalls() {
  Held& held = TheHeld();
  const std::lock_guard lock(held.mutex);
  held.wanted.clear();
  held.holding = false;
  held.changed.notify_all();
}

void WaitWhileHeld(const char* function) {
  Held& held = TheHeld();
  std::unique_lock lock(held.mutex);
  if (held.wanted != function) return;
  held.wanted.clear();
  held.holding = true;
  std::fprintf(stderr, "emulated device: holding %s\n", function);
  held.changed.wait(lock, [&held] { return !held.holding; });
}

FakeUse CurrentUse() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.Settle();
  return {static_cast<int>(runtime.allocations.size()),
          static_cast<int>(runtime.opened.size()), runtime.bytes,
          runtime.pageable_copies};
}

cudaError_t CheckLaunch(const void* kernel, dim3 grid, dim3 block,
                        std::size_t shared_bytes) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (const cudaError_t error = runtime.Enter("cudaLaunchKernelEx");
      error != cudaSuccess) {
    return runtime.Answer(error);
  }
  if (!runtime.device.has_code) {
    return runtime.Answer(cudaErrorNoKernelImageForDevice);
  }
  const auto limit = runtime.shared_limits.find(kernel);
  const std::size_t allowed =
      std::max(kPlainSharedBytes,
               limit == runtime.shared_limits.end() ? 0 : limit->second);
  const bool fits = block.x * block.y * block.z <= 1024 && block.x > 0 &&
                    block.y > 0 && block.z > 0 && block.z <= 64 && grid.x > 0 &&
                    grid.y > 0 && grid.z > 0 && grid.x < (1u << 31) &&
                    grid.y <= 65535 && grid.z <= 65535;
  if (!fits) return runtime.Answer(cudaErrorInvalidConfiguration);
  if (shared_bytes > allowed) return runtime.Answer(cudaErrorInvalidValue);
  return cudaSuccess;
}

}  // namespace holdfast::emulation
