#include "cachesvc/io/thread_pool.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/io/transfer.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

class ThreadPool final : public IoPool {
 public:
  ThreadPool(const IoPoolOptions& options, const std::string& why)
      : max_queued_(options.max_queued),
        description_(fmt::format("pread/pwrite, {} thread{} ({})",
                                 options.depth, options.depth == 1 ? "" : "s",
                                 why)) {
    for (unsigned i = 0; i < options.depth; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }

  // Requests that no thread has begun are cancelled.
  ~ThreadPool() override {
    std::deque<Transfer> left;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      left.swap(queue_);
    }
    changed_.notify_all();
    for (Transfer& transfer : left) {
      transfer.End(absl::CancelledError("the I/O pool stops"), stats_);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<std::shared_ptr<IoBatch>> Submit(
      std::vector<IoRequest> requests,
      std::shared_ptr<const void> keep_alive) override {
    for (const IoRequest& request : requests) {
      if (auto s = CheckRequest(request); !s.ok()) return s;
    }
    auto batch =
        std::make_shared<IoBatch>(requests.size(), std::move(keep_alive));
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || queue_.size() + requests.size() > max_queued_) {
        return absl::ResourceExhaustedError(fmt::format(
            "{} requests wait for the disk already", queue_.size()));
      }
      for (std::size_t i = 0; i < requests.size(); ++i) {
        queue_.emplace_back(std::move(requests[i]), batch, i);
      }
    }
    changed_.notify_all();
    return batch;
  }

  const std::string& Describe() const override { return description_; }
  bool uses_uring() const override { return false; }
  IoStats stats() const override { return stats_.Get(); }

 private:
  void Work() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      Transfer transfer = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      absl::Status status = Run(transfer);
      transfer.End(std::move(status), stats_);
    }
  }

  absl::Status Run(Transfer& transfer) {
    const IoRequest& request = transfer.request();
    if (request.op == IoRequest::Op::kDataSync) {
      return request.file->DataSync();
    }
    while (true) {
      const auto moved =
          request.op == IoRequest::Op::kRead
              ? request.file->ReadAt({transfer.memory(), transfer.bytes()},
                                     transfer.offset())
              : request.file->WriteAt({transfer.memory(), transfer.bytes()},
                                      transfer.offset());
      if (!moved.ok()) return moved.status();
      if (auto end = transfer.Moved(*moved)) return *end;
      ++stats_.resubmitted;
    }
  }

  const std::size_t max_queued_;
  const std::string description_;
  AtomicIoStats stats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> queue_;  // guarded by mutex_
  bool stop_ = false;           // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoPool> MakeThreadPool(const IoPoolOptions& options,
                                       const std::string& why) {
  return std::make_unique<ThreadPool>(options, why);
}

}  // namespace holdfast::cachesvc
