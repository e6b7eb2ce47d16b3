#include "cachesvc/io/io_pool.h"

#include <string>
#include <utility>

#include "cachesvc/io/thread_pool.h"
#include "cachesvc/io/transfer.h"
#include "cachesvc/io/uring_pool.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::cachesvc {

IoBatch::IoBatch(std::size_t requests, std::shared_ptr<const void> keep_alive)
    : results_(requests),
      complete_(requests, false),
      running_(requests),
      open_(requests),
      keep_alive_(std::move(keep_alive)) {}

absl::Status IoBatch::Wait(std::size_t request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline,
                           [&] { return complete_[request]; })) {
    return absl::DeadlineExceededError("no answer from the disk in time");
  }
  return results_[request];
}

absl::Status IoBatch::WaitAll(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return open_ == 0; })) {
    return absl::DeadlineExceededError("no answer from the disk in time");
  }
  for (const absl::Status& result : results_) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

bool IoBatch::Done() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}

void IoBatch::Complete(std::size_t request, absl::Status status) {
  std::shared_ptr<const void> released;
  {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) released = std::move(keep_alive_);
  }
  // Without the lock, and before a waiter learns that the batch has ended: then
  // the memory is free as well.
  released.reset();
  {
    const std::lock_guard lock(mutex_);
    results_[request] = std::move(status);
    complete_[request] = true;
    --open_;
  }
  changed_.notify_all();
}

IoStats AtomicIoStats::Get() const {
  return {reads,         writes, syncs,       read_bytes,
          written_bytes, fixed,  resubmitted, failed};
}

std::optional<absl::Status> Transfer::Moved(std::size_t moved) {
  done_ += moved;
  if (done_ >= request_.bytes) return absl::OkStatus();
  const std::string& path = request_.file->path();
  if (request_.op == IoRequest::Op::kRead) {
    if (moved == 0) {
      return absl::OutOfRangeError(
          fmt::format("read {} at {}: the file ends there", path, offset()));
    }
  } else if (moved == 0) {
    return absl::DataLossError(
        fmt::format("write {} at {}: nothing was written", path, offset()));
  }
  // What direct I/O moved in part it moved in whole sectors; a rest that it
  // cannot take on from there is an error of the file's end.
  if (done_ % kBlockAlignment != 0) {
    return absl::OutOfRangeError(fmt::format(
        "{} at {}: a transfer ended inside a page", path, offset()));
  }
  return std::nullopt;
}

void Transfer::End(absl::Status status, AtomicIoStats& stats) {
  if (!status.ok()) ++stats.failed;
  switch (request_.op) {
    case IoRequest::Op::kRead:
      ++stats.reads;
      stats.read_bytes += done_;
      break;
    case IoRequest::Op::kWrite:
      ++stats.writes;
      stats.written_bytes += done_;
      break;
    case IoRequest::Op::kDataSync:
      ++stats.syncs;
      break;
  }
  // The file is closed before anybody hears of the end, so that whoever waited
  // for the last request may go by the number of open files.
  request_.file.reset();
  batch_->Complete(index_, std::move(status));
}

absl::Status CheckRequest(const IoRequest& request) {
  if (request.op == IoRequest::Op::kDataSync) return absl::OkStatus();
  if (reinterpret_cast<std::uintptr_t>(request.memory) % kBlockAlignment == 0 &&
      request.offset % kBlockAlignment == 0 && request.bytes != 0 &&
      request.bytes % kBlockAlignment == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "{} at {}, {} bytes: direct I/O moves whole pages of {} bytes",
      request.file->path(), request.offset, request.bytes, kBlockAlignment));
}

absl::StatusOr<std::unique_ptr<IoPool>> MakeIoPool(
    const IoPoolOptions& options) {
  if (options.depth == 0 || options.max_queued == 0) {
    return absl::InvalidArgumentError("an I/O pool needs a depth and a queue");
  }
  if (options.kind == IoPoolKind::kThreads) {
    return MakeThreadPool(options, "as asked for");
  }
  auto uring = MakeUringPool(options);
  if (uring.ok() || options.kind == IoPoolKind::kUring) return uring;
  return MakeThreadPool(options, std::string(uring.status().message()));
}

}  // namespace holdfast::cachesvc
