// A CUDA runtime without a device: memory is host memory, streams run at once.
// What a real runtime refuses, this one refuses:
// * device memory is sub-allocated from segments of 2 MiB; an IPC handle names
//   the whole segment or allocation, and opening it gives its base;
// * the process that exported a handle cannot open it; another may open it
//   once more only as a further reference (same pointer), each to be closed;
// * memory freed while a peer has it open stays charged until the peer closes;
// * a copy to or from memory that was freed is an illegal address; a kernel's
//   access is a fault;
// * an illegal address is sticky: every later call fails with it;
// * bytes of memory that was exported and freed are garbage from then on, for
//   a peer that has it open too;
// * a launch with more threads, shared memory or grid than a device takes
//   fails, as does one beyond 48 KiB of shared memory without the attribute;
// * an event is exported only when it was made for that, and not opened by its
//   own process; memory of the driver's virtual memory management comes in
//   whole granules, is exported only when it was made for that, and is reached
//   only where it is mapped and access was set;
// * host memory is registered once; device memory has its budget;
// * what the default stream was told and the host does not wait for (setting
//   memory, copies from ordinary memory) happens no earlier than a
//   synchronisation of that stream;
// * what is copied to the host on a stream is there no earlier than that
//   stream's synchronisation.
// Handles work between processes (they name the exporter's memfd), also after
// the exporter was killed while a peer has them open.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_FAKE_RUNTIME_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_FAKE_RUNTIME_H_

#include <cstddef>
#include <string>

#include "cuda_runtime_api.h"

namespace holdfast::emulation {

struct FakeDevice {
  cudaError_t count_error = cudaSuccess;  // what cudaGetDeviceCount answers
  std::string name = "emulated device";
  char uuid_byte = 7;
  int major = 12;
  int minor = 1;
  int processors = 48;
  bool has_code = true;  // else no kernel was built for it
  bool integrated = true;
  bool ipc = true;  // else IPC calls are "not supported"
  bool ipc_events = true;
  bool events_come = true;  // else never: also what other processes open
  bool vmm = true;          // else the driver has none of the cuMem functions
  bool host_register = true;
  bool pageable_access = true;
  // cublasLt's algorithms multiply what they were chosen for alone.
  bool algorithms_of_one_size = false;
  std::size_t total_bytes = std::size_t{8} << 30;
  std::size_t shared_bytes = 99 << 10;  // of a block, at most
};
// Forgets every allocation and error of this process, and sets the device.
void ResetFakeRuntime(const FakeDevice& device);

// The `after`-th next call of the named function fails with `error`.
void FailCall(const std::string& function, int after, cudaError_t error);

// The next call of the named function says so on standard error and does not
// return, as a driver that hangs, until ReleaseCalls().
void HoldCall(const std::string& function);
void ReleaseCalls();

// Allocations not freed, opened handles not closed.
struct FakeUse {
  int allocations = 0;
  int opened = 0;
  std::size_t bytes = 0;
  // Copies on streams to or from host memory that was not pinned, ever.
  std::size_t pageable_copies = 0;
};
FakeUse CurrentUse();

}  // namespace holdfast::emulation

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_FAKE_RUNTIME_H_
