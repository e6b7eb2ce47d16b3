// Device and pinned memory with owners, and CUDA errors as Status.
#ifndef HOLDFAST_KERNELS_CUDA_DEVICE_MEMORY_H_
#define HOLDFAST_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// "what: cudaErrorX: text", of the code that fits: memory that ran out is
// kResourceExhausted, an operation that the device does not have
// kUnimplemented, all else kInternal.
Status ToStatus(cudaError_t error, std::string_view what);

// Rounded up to 2 MiB from there on: an exported allocation then is alone in
// what its handle shows to the other process.
inline constexpr std::size_t kDeviceGranule = std::size_t{2} << 20;

struct FreeDevice {
  void operator()(std::byte* memory) const { (void)cudaFree(memory); }
};
struct FreePinned {
  void operator()(std::byte* memory) const { (void)cudaFreeHost(memory); }
};

// Zeroed memory of the device that is current; owned, movable.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `what` names the use in the error's message. No bytes: null.
  static StatusOr<DeviceMemory> Make(std::size_t bytes, std::string_view what);
  // What Make takes for so many.
  static std::size_t Rounded(std::size_t bytes);

  std::byte* data() const { return memory_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, FreeDevice> memory_;
  std::size_t bytes_ = 0;
};

// Host memory that the device copies from and to in the background.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static StatusOr<PinnedMemory> Make(std::size_t bytes, std::string_view what);

  std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, FreePinned> memory_;
  std::size_t bytes_ = 0;
};

// Host memory of others, pinned so that the device copies to and from it in the
// background; unpinned when this is destroyed, before the memory goes.
class PinnedRegion {
 public:
  // Takes pages into memory that were not there. `what` names it in the error.
  static StatusOr<PinnedRegion> Make(void* memory, std::size_t bytes,
                                     std::string_view what);
  PinnedRegion(PinnedRegion&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedRegion& operator=(PinnedRegion&&) = delete;
  ~PinnedRegion() {
    if (memory_ != nullptr) (void)cudaHostUnregister(memory_);
  }

 private:
  explicit PinnedRegion(void* memory) : memory_(memory) {}

  void* memory_;
};

// There for every stream when this returns. `what` names it in the error.
Status CopyToDevice(void* to, const void* from, std::size_t bytes,
                    std::string_view what);

struct DestroyStream {
  void operator()(CUstream_st* stream) const {
    (void)cudaStreamDestroy(stream);
  }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
StatusOr<Stream> MakeStream();

struct DestroyEvent {
  void operator()(CUevent_st* event) const { (void)cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
StatusOr<Event> MakeEvent();

}  // namespace holdfast::kernels::cuda

#define HF_CUDA_RETURN_IF_ERROR(expression, what)                  \
  do {                                                             \
    if (const cudaError_t hf_error_ = (expression);                \
        hf_error_ != cudaSuccess) {                                \
      return ::holdfast::kernels::cuda::ToStatus(hf_error_, what); \
    }                                                              \
  } while (false)

#endif  // HOLDFAST_KERNELS_CUDA_DEVICE_MEMORY_H_
