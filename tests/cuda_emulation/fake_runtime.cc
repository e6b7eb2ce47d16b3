#include "tests/cuda_emulation/fake_runtime.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

namespace holdfast::emulation {
namespace {

constexpr std::size_t kSegmentBytes = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kPlainSharedBytes = 48 << 10;
constexpr int kFreshMemory = 0xff;  // NaN, whatever the type

// What the driver maps as one: an own allocation of at least 2 MiB, or small
// ones together.
struct Segment {
  int fd = -1;
  std::size_t bytes = 0;
  std::size_t used = 0;
  int allocations = 0;
  bool shared = false;  // small allocations
};

struct HandleBytes {
  char magic[8];
  int pid;
  int fd;
  std::size_t bytes;
  char uuid_byte;
};
static_assert(sizeof(HandleBytes) <= sizeof(cudaIpcMemHandle_t));

struct Opened {
  std::tuple<int, int> exporter;
  std::size_t bytes = 0;
  int references = 0;
};

struct Failure {
  int calls_left = 0;
  cudaError_t error = cudaSuccess;
};

class Runtime {
 public:
  static Runtime& Get() {
    static Runtime runtime;
    return runtime;
  }

  std::mutex mutex;
  FakeDevice device;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  std::map<std::string, Failure> failures;
  std::map<char*, Segment> segments;         // by base
  std::map<char*, std::size_t> allocations;  // by pointer
  std::map<char*, Opened> opened;            // by base
  std::map<void*, std::size_t> pinned;       // cudaHostAlloc
  std::map<void*, std::size_t> registered;   // cudaHostRegister
  std::map<const void*, std::size_t> shared_limits;
  std::size_t bytes = 0;
  // Work of the default stream that the host does not wait for.
  std::vector<std::function<void()>> pending;

  void Flush() {
    for (const auto& work : pending) work();
    pending.clear();
  }
  bool Pinned(const void* pointer) const {
    const auto it = pinned.upper_bound(const_cast<void*>(pointer));
    if (it == pinned.begin()) return false;
    const auto& [start, size] = *std::prev(it);
    return pointer < static_cast<const char*>(start) + size;
  }

  cudaError_t Answer(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
  }

  // First of every call: a sticky error, or one that a test asked for.
  cudaError_t Enter(const char* function) {
    if (sticky != cudaSuccess) return sticky;
    const auto failure = failures.find(function);
    if (failure == failures.end() || --failure->second.calls_left > 0) {
      return cudaSuccess;
    }
    const cudaError_t error = failure->second.error;
    failures.erase(failure);
    if (error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure) {
      sticky = error;
    }
    return error;
  }

  char* NewSegment(std::size_t size, bool small) {
    Segment segment;
    segment.fd = memfd_create("fake-device", MFD_CLOEXEC);
    segment.bytes = size;
    segment.shared = small;
    if (segment.fd < 0 ||
        ftruncate(segment.fd, static_cast<off_t>(size)) != 0) {
      return nullptr;
    }
    void* base =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    if (base == MAP_FAILED) return nullptr;
    segments[static_cast<char*>(base)] = segment;
    return static_cast<char*>(base);
  }

  cudaError_t Allocate(void** pointer, std::size_t size) {
    if (size == 0) {
      *pointer = nullptr;
      return cudaSuccess;
    }
    const std::size_t rounded =
        (size + kAlignment - 1) / kAlignment * kAlignment;
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

  // The segment that holds an address; end() for none.
  auto SegmentOf(const void* address) {
    const auto* at = static_cast<const char*>(address);
    auto it = segments.upper_bound(const_cast<char*>(at));
    if (it == segments.begin()) return segments.end();
    --it;
    return at < it->first + it->second.bytes ? it : segments.end();
  }

  cudaError_t Free(void* pointer) {
    if (pointer == nullptr) return cudaSuccess;
    const auto it = allocations.find(static_cast<char*>(pointer));
    if (it == allocations.end()) return cudaErrorInvalidValue;
    bytes -= it->second;
    allocations.erase(it);
    const auto segment = SegmentOf(pointer);
    if (--segment->second.allocations > 0) return cudaSuccess;
    // The pages go when the last process that has them mapped lets go.
    munmap(segment->first, segment->second.bytes);
    close(segment->second.fd);
    segments.erase(segment);
    return cudaSuccess;
  }

  cudaError_t Open(void** pointer, const cudaIpcMemHandle_t& handle) {
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
    void* base = mmap(nullptr, bytes_of.bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return cudaErrorMapBufferObjectFailed;
    opened[static_cast<char*>(base)] = {exporter, bytes_of.bytes, 1};
    *pointer = base;
    return cudaSuccess;
  }

  cudaError_t Export(cudaIpcMemHandle_t* handle, void* pointer) {
    if (!device.ipc) return cudaErrorNotSupported;
    const auto segment = SegmentOf(pointer);
    if (segment == segments.end()) return cudaErrorInvalidValue;
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

  cudaError_t Close(void* pointer) {
    const auto it = opened.find(static_cast<char*>(pointer));
    if (it == opened.end()) return cudaErrorInvalidValue;
    if (--it->second.references > 0) return cudaSuccess;
    munmap(it->first, it->second.bytes);
    opened.erase(it);
    return cudaSuccess;
  }
};

}  // namespace

void ResetFakeRuntime(const FakeDevice& device) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  while (!runtime.allocations.empty()) {
    (void)runtime.Free(runtime.allocations.begin()->first);
  }
  while (!runtime.opened.empty()) {
    (void)runtime.Close(runtime.opened.begin()->first);
  }
  for (const auto& [pointer, bytes] : runtime.pinned) std::free(pointer);
  runtime.pinned.clear();
  runtime.pending.clear();
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

FakeUse CurrentUse() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return {static_cast<int>(runtime.allocations.size()),
          static_cast<int>(runtime.opened.size()), runtime.bytes};
}

cudaError_t CheckLaunch(const void* kernel, dim3 grid, dim3 block,
                        std::size_t shared_bytes) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (const cudaError_t error = runtime.Enter("cudaLaunchKernelEx");
      error != cudaSuccess) {
    return runtime.Answer(error);
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

namespace {
using holdfast::emulation::Runtime;
}  // namespace

#define HF_ENTER(name)                                 \
  Runtime& runtime = Runtime::Get();                   \
  const std::lock_guard lock(runtime.mutex);           \
  if (const cudaError_t entered = runtime.Enter(name); \
      entered != cudaSuccess) {                        \
    return runtime.Answer(entered);                    \
  }

cudaError_t cudaGetDeviceCount(int* count) {
  HF_ENTER("cudaGetDeviceCount");
  *count = runtime.device.count_error == cudaSuccess ? 1 : 0;
  return runtime.Answer(runtime.device.count_error);
}

cudaError_t cudaSetDevice(int device) {
  HF_ENTER("cudaSetDevice");
  return runtime.Answer(device == 0 ? runtime.device.count_error
                                    : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  HF_ENTER("cudaGetDevice");
  *device = 0;
  return runtime.Answer(runtime.device.count_error);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  HF_ENTER("cudaGetDeviceProperties");
  if (device != 0) return runtime.Answer(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof(*properties));
  std::snprintf(properties->name, sizeof(properties->name), "%s",
                runtime.device.name.c_str());
  std::memset(properties->uuid.bytes, runtime.device.uuid_byte, 16);
  properties->totalGlobalMem = runtime.device.total_bytes;
  properties->major = runtime.device.major;
  properties->minor = runtime.device.minor;
  properties->multiProcessorCount = runtime.device.processors;
  properties->integrated = runtime.device.integrated ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  HF_ENTER("cudaDeviceGetAttribute");
  if (device != 0) return runtime.Answer(cudaErrorInvalidDevice);
  const auto& fake = runtime.device;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = fake.processors;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = fake.integrated;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = fake.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = fake.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(fake.shared_bytes);
      return cudaSuccess;
    case cudaDevAttrHostRegisterSupported:
      *value = fake.host_register;
      return cudaSuccess;
    case cudaDevAttrIpcEventSupport:
      *value = fake.ipc;
      return cudaSuccess;
    default:
      *value = 0;
      return cudaSuccess;
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  HF_ENTER("cudaDriverGetVersion");
  *version = runtime.device.count_error == cudaSuccess ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  HF_ENTER("cudaRuntimeGetVersion");
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  HF_ENTER("cudaDeviceSynchronize");
  runtime.Flush();
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "emulated error";
  }
}

cudaError_t cudaGetLastError() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (runtime.sticky != cudaSuccess) return runtime.sticky;
  return std::exchange(runtime.last, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.sticky != cudaSuccess ? runtime.sticky : runtime.last;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  HF_ENTER("cudaMalloc");
  return runtime.Answer(runtime.Allocate(pointer, bytes));
}

cudaError_t cudaFree(void* pointer) {
  HF_ENTER("cudaFree");
  runtime.Flush();
  return runtime.Answer(runtime.Free(pointer));
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  HF_ENTER("cudaHostAlloc");
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*pointer == nullptr) return runtime.Answer(cudaErrorMemoryAllocation);
  runtime.pinned[*pointer] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  HF_ENTER("cudaFreeHost");
  if (pointer == nullptr) return cudaSuccess;
  if (runtime.pinned.erase(pointer) == 0) {
    return runtime.Answer(cudaErrorInvalidValue);
  }
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  HF_ENTER("cudaHostRegister");
  if (!runtime.device.host_register || flags != cudaHostRegisterDefault) {
    return runtime.Answer(cudaErrorNotSupported);
  }
  if (!runtime.registered.emplace(pointer, bytes).second) {
    return runtime.Answer(cudaErrorHostMemoryAlreadyRegistered);
  }
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  HF_ENTER("cudaHostUnregister");
  return runtime.Answer(runtime.registered.erase(pointer) == 1
                            ? cudaSuccess
                            : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  HF_ENTER("cudaMemGetInfo");
  *total = runtime.device.total_bytes;
  *free = *total - runtime.bytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind) {
  HF_ENTER("cudaMemcpy");
  runtime.Flush();
  if (kind == cudaMemcpyHostToDevice && !runtime.Pinned(from)) {
    const auto* start = static_cast<const char*>(from);
    runtime.pending.push_back(
        [to, copy = std::vector<char>(start, start + bytes)] {
          std::memcpy(to, copy.data(), copy.size());
        });
    return cudaSuccess;
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                            cudaMemcpyKind, cudaStream_t) {
  HF_ENTER("cudaMemcpyAsync");
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind,
                              cudaStream_t) {
  HF_ENTER("cudaMemcpy2DAsync");
  if (width > to_pitch || width > from_pitch) {
    return runtime.Answer(cudaErrorInvalidValue);
  }
  for (std::size_t i = 0; i < height; ++i) {
    std::memmove(static_cast<char*>(to) + i * to_pitch,
                 static_cast<const char*>(from) + i * from_pitch, width);
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  HF_ENTER("cudaMemset");
  runtime.pending.push_back([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes,
                            cudaStream_t) {
  HF_ENTER("cudaMemsetAsync");
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  HF_ENTER("cudaStreamCreateWithFlags");
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  HF_ENTER("cudaStreamSynchronize");
  if (stream == nullptr) runtime.Flush();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  HF_ENTER("cudaStreamQuery");
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  HF_ENTER("cudaEventCreateWithFlags");
  *event = reinterpret_cast<cudaEvent_t>(new char);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<char*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  HF_ENTER("cudaEventRecord");
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  HF_ENTER("cudaEventSynchronize");
  return cudaSuccess;
}

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

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute,
                                 int value) {
  HF_ENTER("cudaFuncSetAttribute");
  if (value < 0 ||
      static_cast<std::size_t>(value) > runtime.device.shared_bytes) {
    return runtime.Answer(cudaErrorInvalidValue);
  }
  runtime.shared_limits[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
