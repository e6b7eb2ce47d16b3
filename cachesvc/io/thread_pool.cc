#include "cachesvc/io/thread_pool.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/io/transfer.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// What the threads share: one that hangs in the disk outlives the pool.
class Workers {
 public:
  explicit Workers(std::size_t max_queued) : max_queued_(max_queued) {}

  absl::StatusOr<std::shared_ptr<IoBatch>> Submit(
      std::vector<IoRequest> requests, std::shared_ptr<const void> keep_alive) {
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

  // Of each thread.
  void Work() {
    std::unique_lock lock(mutex_);
    ++running_;
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) break;
      {
        Transfer transfer = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        absl::Status status = Run(transfer);
        transfer.End(std::move(status), stats_);
      }
      lock.lock();
    }
    --running_;
    changed_.notify_all();
  }

  // Cancels what no thread has begun. False: a thread is still in the disk.
  bool Stop(Deadline deadline) {
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
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return running_ == 0; });
  }

  IoStats stats() const { return stats_.Get(); }

 private:
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
  AtomicIoStats stats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> queue_;  // guarded by mutex_
  std::size_t running_ = 0;     // threads in Work(); guarded by mutex_
  bool stop_ = false;           // guarded by mutex_
};

class ThreadPool final : public IoPool {
 public:
  ThreadPool(const IoPoolOptions& options, const std::string& why)
      : stop_wait_(options.stop_wait),
        description_(fmt::format("pread/pwrite, {} thread{} ({})",
                                 options.depth, options.depth == 1 ? "" : "s",
                                 why)),
        workers_(std::make_shared<Workers>(options.max_queued)) {
    for (unsigned i = 0; i < options.depth; ++i) {
      threads_.emplace_back([workers = workers_] { workers->Work(); });
    }
  }

  ~ThreadPool() override {
    const bool ended =
        workers_->Stop(std::chrono::steady_clock::now() + stop_wait_);
    for (std::thread& thread : threads_) {
      // What it still moves keeps its file and memory.
      ended ? thread.join() : thread.detach();
    }
  }

  absl::StatusOr<std::shared_ptr<IoBatch>> Submit(
      std::vector<IoRequest> requests,
      std::shared_ptr<const void> keep_alive) override {
    for (const IoRequest& request : requests) {
      if (auto s = CheckRequest(request); !s.ok()) return s;
    }
    return workers_->Submit(std::move(requests), std::move(keep_alive));
  }

  const std::string& Describe() const override { return description_; }
  bool uses_uring() const override { return false; }
  IoStats stats() const override { return workers_->stats(); }

 private:
  const std::chrono::milliseconds stop_wait_;
  const std::string description_;
  const std::shared_ptr<Workers> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoPool> MakeThreadPool(const IoPoolOptions& options,
                                       const std::string& why) {
  return std::make_unique<ThreadPool>(options, why);
}

}  // namespace holdfast::cachesvc
