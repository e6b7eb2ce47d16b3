#include "cachesvc/io/uring_pool.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/io/transfer.h"
#include "fmt/format.h"
#include "shared/check.h"

namespace holdfast::cachesvc {
namespace {

constexpr int kSubmitTries = 1000;
// The kernel takes no larger registered buffer.
constexpr std::size_t kLargestFixed = std::size_t{1} << 30;

class UringPool final : public IoPool {
 public:
  explicit UringPool(const IoPoolOptions& options)
      : depth_(options.depth),
        max_queued_(options.max_queued),
        stop_wait_(options.stop_wait) {}

  absl::Status Start(const IoPoolOptions& options) {
    // One entry more: the request that ends the reaper.
    const int error = io_uring_queue_init(depth_ + 1, &ring_, 0);
    if (error != 0) {
      return absl::ErrnoToStatus(-error, "io_uring is not available");
    }
    ready_ = true;
    Register(options.fixed_buffers);
    reaper_ = std::thread([this] { Reap(); });
    return absl::OkStatus();
  }

  ~UringPool() override {
    if (!ready_) return;
    std::deque<Transfer*> left;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      left.swap(queue_);
    }
    for (Transfer* transfer : left) {
      Finish(transfer, absl::CancelledError("the I/O pool stops"));
    }
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop_wait_, [&] { return in_flight_ == 0; });
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      HF_CHECK(sqe != nullptr);
      io_uring_prep_nop(sqe);
      io_uring_sqe_set_data(sqe, nullptr);
      io_uring_submit(&ring_);
    }
    reaper_.join();
    io_uring_queue_exit(&ring_);
  }

  absl::StatusOr<std::shared_ptr<IoBatch>> Submit(
      std::vector<IoRequest> requests,
      std::shared_ptr<const void> keep_alive) override {
    for (const IoRequest& request : requests) {
      if (auto s = CheckRequest(request); !s.ok()) return s;
      if (request.file->fd() < 0) {
        return absl::InvalidArgumentError(fmt::format(
            "{} has no descriptor for io_uring", request.file->path()));
      }
    }
    auto batch =
        std::make_shared<IoBatch>(requests.size(), std::move(keep_alive));
    const std::lock_guard lock(mutex_);
    const std::size_t waiting = queue_.size() + in_flight_;
    if (stop_ || waiting + requests.size() > max_queued_) {
      return absl::ResourceExhaustedError(
          fmt::format("{} requests wait for the disk already", waiting));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      queue_.push_back(new Transfer(std::move(requests[i]), batch, i));
    }
    Fill();
    return batch;
  }

  const std::string& Describe() const override { return description_; }
  bool uses_uring() const override { return true; }
  IoStats stats() const override { return stats_.Get(); }

 private:
  void Register(const std::vector<std::span<std::byte>>& memory) {
    for (const auto& span : memory) {
      for (std::size_t at = 0; at < span.size(); at += kLargestFixed) {
        fixed_.push_back(
            {span.data() + at, std::min(kLargestFixed, span.size() - at)});
      }
    }
    std::string buffers = "no fixed buffers";
    if (!fixed_.empty()) {
      const int error = io_uring_register_buffers(
          &ring_, fixed_.data(), static_cast<unsigned>(fixed_.size()));
      buffers = error == 0 ? fmt::format("{} fixed buffer{}", fixed_.size(),
                                         fixed_.size() == 1 ? "" : "s")
                           : fmt::format("fixed buffers refused: {}",
                                         std::strerror(-error));
      if (error != 0) fixed_.clear();
    }
    description_ = fmt::format("io_uring, depth {}, {}", depth_, buffers);
  }

  // The registered buffer that holds all of the transfer's memory, or -1.
  int FixedBuffer(const Transfer& transfer) const {
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      const auto* base = static_cast<const std::byte*>(fixed_[i].iov_base);
      if (transfer.memory() >= base &&
          transfer.memory() + transfer.bytes() <= base + fixed_[i].iov_len) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  // Hands requests to the kernel up to the depth. mutex_ is held.
  void Fill() {
    while (!stop_ && in_flight_ < depth_ && !queue_.empty()) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) break;
      Transfer* transfer = queue_.front();
      queue_.pop_front();
      Prepare(sqe, *transfer);
      io_uring_sqe_set_data(sqe, transfer);
      ++in_flight_;
    }
    // What the kernel did not take stays in the ring, also that of an earlier
    // call: it may take a part alone. What a kernel short of memory still
    // leaves there the next call submits, and whoever waits has a deadline.
    for (int i = 0; io_uring_sq_ready(&ring_) > 0 && i < kSubmitTries; ++i) {
      const int taken = io_uring_submit(&ring_);
      if (taken > 0) continue;
      if (taken != -EAGAIN && taken != -EINTR) break;
      std::this_thread::yield();
    }
  }

  void Prepare(io_uring_sqe* sqe, const Transfer& transfer) {
    const IoRequest& request = transfer.request();
    const int fd = request.file->fd();
    if (request.op == IoRequest::Op::kDataSync) {
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
      return;
    }
    const auto bytes = static_cast<unsigned>(transfer.bytes());
    const int fixed = FixedBuffer(transfer);
    if (fixed >= 0) ++stats_.fixed;
    if (request.op == IoRequest::Op::kRead && fixed >= 0) {
      io_uring_prep_read_fixed(sqe, fd, transfer.memory(), bytes,
                               transfer.offset(), fixed);
    } else if (request.op == IoRequest::Op::kRead) {
      io_uring_prep_read(sqe, fd, transfer.memory(), bytes, transfer.offset());
    } else if (fixed >= 0) {
      io_uring_prep_write_fixed(sqe, fd, transfer.memory(), bytes,
                                transfer.offset(), fixed);
    } else {
      io_uring_prep_write(sqe, fd, transfer.memory(), bytes, transfer.offset());
    }
  }

  void Reap() {
    while (true) {
      io_uring_cqe* cqe = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == -EINTR || error == -EAGAIN) continue;
      HF_CHECK(error == 0);
      auto* transfer = static_cast<Transfer*>(io_uring_cqe_get_data(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (transfer == nullptr) return;
      Landed(transfer, result);
    }
  }

  void Landed(Transfer* transfer, int result) {
    std::optional<absl::Status> end;
    const bool again = result == -EINTR || result == -EAGAIN;
    if (result < 0 && !again) {
      end = absl::ErrnoToStatus(
          -result,
          fmt::format("I/O on {} at {}", transfer->request().file->path(),
                      transfer->offset()));
    } else if (!again) {
      end = transfer->Moved(static_cast<std::size_t>(result));
    }
    {
      const std::lock_guard lock(mutex_);
      --in_flight_;
      if (!end && stop_) end = absl::CancelledError("the I/O pool stops");
      if (!end) {
        ++stats_.resubmitted;
        queue_.push_front(transfer);
      }
      Fill();
    }
    if (end) Finish(transfer, *end);
    changed_.notify_all();
  }

  void Finish(Transfer* transfer, absl::Status status) {
    transfer->End(std::move(status), stats_);
    delete transfer;
  }

  const unsigned depth_;
  const std::size_t max_queued_;
  const std::chrono::milliseconds stop_wait_;
  std::string description_;
  AtomicIoStats stats_;
  io_uring ring_{};
  bool ready_ = false;
  std::vector<iovec> fixed_;
  std::thread reaper_;  // the only one that takes completions
  std::mutex mutex_;    // the submission side of ring_ and all below
  std::condition_variable changed_;
  std::deque<Transfer*> queue_;  // owned
  std::size_t in_flight_ = 0;
  bool stop_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoPool>> MakeUringPool(
    const IoPoolOptions& options) {
  auto pool = std::make_unique<UringPool>(options);
  if (auto s = pool->Start(options); !s.ok()) return s;
  return pool;
}

}  // namespace holdfast::cachesvc
