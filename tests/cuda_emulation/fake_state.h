// The fake runtime's state and rules (fake_runtime.h says which). Its calls are
// in fake_*_calls.cc, by what they are about.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_FAKE_STATE_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_FAKE_STATE_H_

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cuda_runtime.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::emulation {

inline constexpr std::size_t kSegmentBytes = std::size_t{2} << 20;
inline constexpr std::size_t kAlignment = 256;
inline constexpr std::size_t kPlainSharedBytes = 48 << 10;
inline constexpr int kFreshMemory = 0xff;  // NaN, whatever the type
inline constexpr int kFreedMemory = 0xfd;

// What the driver maps as one: an own allocation of at least 2 MiB, or small
// ones together.
struct Segment {
  int fd = -1;
  std::size_t bytes = 0;
  std::size_t used = 0;
  int allocations = 0;
  bool shared = false;  // small allocations
  bool exported = false;
};

struct HandleBytes {
  char magic[8];
  int pid;
  int fd;
  std::size_t bytes;
  char uuid_byte;
};
static_assert(sizeof(HandleBytes) <= sizeof(cudaIpcMemHandle_t));

// The exporter's memory has a lock on it from each process that has it open:
// that goes with the process, too.
struct Opened {
  std::tuple<int, int> exporter;
  std::size_t bytes = 0;
  int references = 0;
  int fd = -1;
};

// Freed while another process has it open: stays charged until that lets go.
struct Lingering {
  int fd = -1;
  std::size_t bytes = 0;
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
  std::vector<Lingering> lingering;
  std::map<char*, std::size_t> freed;       // addresses nobody gets again
  std::map<void*, std::size_t> pinned;      // cudaHostAlloc
  std::map<void*, std::size_t> registered;  // cudaHostRegister
  std::map<const void*, std::size_t> shared_limits;
  std::map<cudaEvent_t, unsigned> event_flags;
  std::set<cudaEvent_t> never_come;  // opened here
  std::size_t bytes = 0;
  std::size_t pageable_copies = 0;  // on streams
  // Work of the default stream that the host does not wait for.
  std::vector<std::function<void()>> pending;

  // Copies to the host that have not arrived.
  std::map<cudaStream_t, std::vector<std::function<void()>>> arriving;

  void Flush() {
    for (const auto& work : pending) work();
    pending.clear();
  }
  void Arrive(cudaStream_t stream) {
    for (const auto& copy : arriving[stream]) copy();
    arriving.erase(stream);
  }
  void ArriveAll() {
    while (!arriving.empty()) Arrive(arriving.begin()->first);
  }
  bool Pinned(const void* pointer) const {
    const auto in = [pointer](const std::map<void*, std::size_t>& memory) {
      const auto it = memory.upper_bound(const_cast<void*>(pointer));
      if (it == memory.begin()) return false;
      const auto& [start, size] = *std::prev(it);
      return pointer < static_cast<const char*>(start) + size;
    };
    return in(pinned) || in(registered);
  }

  bool Freed(const void* address) const {
    const auto* at = static_cast<const char*>(address);
    const auto it = freed.upper_bound(const_cast<char*>(at));
    if (it == freed.begin()) return false;
    const auto& [start, size] = *std::prev(it);
    return at < start + size;
  }
  // What a device says to an access to these: nothing, or what stays.
  cudaError_t Touch(const void* to, const void* from) {
    if (Freed(to) || Freed(from)) sticky = cudaErrorIllegalAddress;
    return sticky;
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

  // Whether the calling thread has a context: a driver's call needs one, and
  // some of the runtime's make it.
  static bool& Context() {
    static thread_local bool current = false;
    return current;
  }

  char* NewSegment(std::size_t size, bool small);
  cudaError_t Allocate(void** pointer, std::size_t size);
  // The segment that holds an address; end() for none.
  std::map<char*, Segment>::iterator SegmentOf(const void* address) {
    const auto* at = static_cast<const char*>(address);
    auto it = segments.upper_bound(const_cast<char*>(at));
    if (it == segments.begin()) return segments.end();
    --it;
    return at < it->first + it->second.bytes ? it : segments.end();
  }

  cudaError_t Free(void* pointer);
  // No longer charges for what other processes have let go of.
  void Settle();
  cudaError_t Open(void** pointer, const cudaIpcMemHandle_t& handle);
  cudaError_t Export(cudaIpcMemHandle_t* handle, void* pointer);
  cudaError_t Close(void* pointer);
};

// Before the runtime's mutex is taken: a call that hangs holds up no other.
void WaitWhileHeld(const char* function);

}  // namespace holdfast::emulation

// First in every call.
#define HF_ENTER(name)                                 \
  holdfast::emulation::WaitWhileHeld(name);            \
  auto& runtime = holdfast::emulation::Runtime::Get(); \
  const std::lock_guard lock(runtime.mutex);           \
  if (const cudaError_t entered = runtime.Enter(name); \
      entered != cudaSuccess) {                        \
    return runtime.Answer(entered);                    \
  }

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_FAKE_STATE_H_
