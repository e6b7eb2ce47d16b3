// The CPU backend. Its arithmetic is defined in ARITHMETIC.md, not left to the
// machine: equal bits on every instruction set and thread count.
#ifndef HOLDFAST_KERNELS_HOST_HOST_BACKEND_H_
#define HOLDFAST_KERNELS_HOST_HOST_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::kernels {

struct HostOptions {
  int threads = 0;  // 0: one per online CPU
  // kGrid, for tests of what holds on a grid backend: single rows are summed in
  // another order than the same rows among others (ARITHMETIC.md).
  Exactness exactness = Exactness::kRowInvariant;
};

// An error when the machine has no supported instruction set (fused
// multiply-add is required).
StatusOr<std::unique_ptr<Backend>> MakeHostBackend(const HostOptions& options);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_HOST_BACKEND_H_
