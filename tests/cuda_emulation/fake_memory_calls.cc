// Memory and copies.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/cuda_emulation/fake_state.h"

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  HF_ENTER("cudaMalloc");
  runtime.Context() = true;
  return runtime.Answer(runtime.Allocate(pointer, bytes));
}

cudaError_t cudaFree(void* pointer) {
  HF_ENTER("cudaFree");
  runtime.Context() = true;
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
  runtime.Settle();
  *total = runtime.device.total_bytes;
  *free = *total - runtime.bytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind) {
  HF_ENTER("cudaMemcpy");
  if (runtime.Touch(to, from) != cudaSuccess) return runtime.sticky;
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
                            cudaMemcpyKind kind, cudaStream_t stream) {
  HF_ENTER("cudaMemcpyAsync");
  if (runtime.Touch(to, from) != cudaSuccess) return runtime.sticky;
  if ((kind == cudaMemcpyDeviceToHost && !runtime.Pinned(to)) ||
      (kind == cudaMemcpyHostToDevice && !runtime.Pinned(from))) {
    ++runtime.pageable_copies;
  }
  if (kind == cudaMemcpyDeviceToHost) {
    const auto* start = static_cast<const char*>(from);
    runtime.arriving[stream].push_back(
        [to, copy = std::vector<char>(start, start + bytes)] {
          std::memcpy(to, copy.data(), copy.size());
        });
    return cudaSuccess;
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind,
                              cudaStream_t) {
  HF_ENTER("cudaMemcpy2DAsync");
  if (runtime.Touch(to, from) != cudaSuccess) return runtime.sticky;
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
  if (runtime.Touch(to, to) != cudaSuccess) return runtime.sticky;
  runtime.pending.push_back([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes,
                            cudaStream_t) {
  HF_ENTER("cudaMemsetAsync");
  if (runtime.Touch(to, to) != cudaSuccess) return runtime.sticky;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
