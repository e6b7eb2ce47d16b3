// Many direct reads and writes at a time, with a deadline on every wait.
//
// Two pools stand behind one interface: io_uring (with fixed buffers where
// memory was registered) and threads that call pread and pwrite. Which one runs
// is chosen once, at start, said in Describe() and counted in stats().
#ifndef HOLDFAST_CACHESVC_IO_IO_POOL_H_
#define HOLDFAST_CACHESVC_IO_IO_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/clock/clock.h"
#include "shared/fs/file_system.h"

namespace holdfast::cachesvc {

struct IoRequest {
  enum class Op { kRead, kWrite, kDataSync };

  static IoRequest Read(std::shared_ptr<File> file, std::uint64_t offset,
                        std::span<std::byte> to) {
    return {Op::kRead, std::move(file), offset, to.data(), to.size()};
  }
  // `from` is only read.
  static IoRequest Write(std::shared_ptr<File> file, std::uint64_t offset,
                         std::span<const std::byte> from) {
    return {Op::kWrite, std::move(file), offset,
            const_cast<std::byte*>(from.data()), from.size()};
  }
  static IoRequest Sync(std::shared_ptr<File> file) {
    return {Op::kDataSync, std::move(file), 0, nullptr, 0};
  }

  Op op = Op::kRead;
  std::shared_ptr<File> file;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

// Requests that were submitted together. Thread-safe. Whoever gives up waiting
// may drop it: the requests still run, and what was handed over as
// `keep_alive` lives until the last of them has ended.
class IoBatch {
 public:
  IoBatch(std::size_t requests, std::shared_ptr<const void> keep_alive);

  // The result of one request: OK when all its bytes were moved. A file that
  // ends earlier is OutOfRange; no result by the deadline DeadlineExceeded.
  absl::Status Wait(std::size_t request, Deadline deadline);
  // The first error among all.
  absl::Status WaitAll(Deadline deadline);
  bool Done() const;

  // Of the pools.
  void Complete(std::size_t request, absl::Status status);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<absl::Status> results_;  // guarded by mutex_, like all below
  std::vector<bool> complete_;
  std::size_t running_;  // requests whose memory may still be in use
  std::size_t open_;     // requests without a result
  std::shared_ptr<const void> keep_alive_;
};

struct IoStats {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t syncs = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t fixed_buffer_requests = 0;  // io_uring with registered memory
  std::uint64_t resubmitted = 0;            // after a short transfer
  std::uint64_t failed = 0;
};

// Thread-safe. Destroying a pool waits a bounded time for what is in flight.
class IoPool {
 public:
  virtual ~IoPool() = default;
  // Starts all requests; the queue is bounded: ResourceExhausted when it is
  // full, and then none was started. `keep_alive` owns the memory.
  virtual absl::StatusOr<std::shared_ptr<IoBatch>> Submit(
      std::vector<IoRequest> requests,
      std::shared_ptr<const void> keep_alive) = 0;
  // "io_uring, depth 16, 1 fixed buffer" and why, for the log at start.
  virtual const std::string& Describe() const = 0;
  virtual bool uses_uring() const = 0;
  virtual IoStats stats() const = 0;
};

enum class IoPoolKind {
  kBest,     // io_uring where the kernel allows it, else threads
  kUring,    // or an error
  kThreads,  // the only one that serves files without a descriptor
};

struct IoPoolOptions {
  IoPoolKind kind = IoPoolKind::kBest;
  // Requests under way at once. Bytes in flight are what counts for a drive:
  // with 2 MiB requests 16 keep an NVMe drive busy.
  unsigned depth = 16;
  // Requests accepted and not ended.
  std::size_t max_queued = 8192;
  // Memory to register with io_uring (staging); must outlive the pool. When the
  // kernel refuses (RLIMIT_MEMLOCK), the ring runs without, and says so.
  std::vector<std::span<std::byte>> fixed_buffers = {};
  // A pool that ends waits this long for the disk; what hangs is left behind
  // with its file and memory.
  std::chrono::milliseconds stop_wait{10000};
};

absl::StatusOr<std::unique_ptr<IoPool>> MakeIoPool(
    const IoPoolOptions& options);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_IO_IO_POOL_H_
