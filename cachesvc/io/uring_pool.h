// The I/O pool of io_uring.
#ifndef HOLDFAST_CACHESVC_IO_URING_POOL_H_
#define HOLDFAST_CACHESVC_IO_URING_POOL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cachesvc/io/io_pool.h"

namespace holdfast::cachesvc {

// An error, with the reason, where the kernel does not offer io_uring.
absl::StatusOr<std::unique_ptr<IoPool>> MakeUringPool(
    const IoPoolOptions& options);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_IO_URING_POOL_H_
