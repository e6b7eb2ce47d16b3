#include "cachesvc/writer/store_writer.h"

#include <chrono>
#include <utility>

namespace holdfast::cachesvc {
namespace {

std::uint64_t BytesOf(const ManifestWrite& write) {
  std::uint64_t bytes = 0;
  for (const ChunkWrite& chunk : write.chunks) {
    bytes += chunk.block_count() * write.layout.BlockBytes();
  }
  for (const StateWrite& state : write.states) bytes += state.bytes.size();
  return bytes;
}

void Tell(WriteJob& job, const absl::StatusOr<WriteResult>& result) {
  if (job.done) job.done(result);
}

}  // namespace

StoreWriter::StoreWriter(ChunkStore& store, const StoreWriterOptions& options)
    : store_(store),
      options_(options),
      limiter_(options.bytes_per_second),
      thread_([this] { Run(); }) {}

StoreWriter::~StoreWriter() { Stop(); }

bool StoreWriter::Fits(const Queue& queue, std::uint64_t bytes) const {
  // One that is larger than the bound alone still gets in: the bound is there
  // to limit what waits, not what can be stored.
  return queue.jobs.empty() || (queue.jobs.size() < options_.max_jobs &&
                                queue.bytes + bytes <= options_.max_bytes);
}

bool StoreWriter::Offer(WriteJob job) {
  const std::uint64_t bytes = BytesOf(job.write);
  {
    const std::lock_guard lock(mutex_);
    if (!stop_ && Fits(offers_, bytes)) {
      offers_.bytes += bytes;
      offers_.jobs.push_back(std::move(job));
      ++stats_.accepted;
      changed_.notify_all();
      return true;
    }
    ++(stop_ ? stats_.dropped_stop : stats_.dropped_full);
  }
  Tell(job, absl::ResourceExhaustedError("the writer's queue is full"));
  return false;
}

bool StoreWriter::Spill(WriteJob job) {
  const std::uint64_t bytes = BytesOf(job.write);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, job.write.deadline,
                        [&] { return stop_ || Fits(spills_, bytes); });
    if (!stop_ && Fits(spills_, bytes)) {
      spills_.bytes += bytes;
      spills_.jobs.push_back(std::move(job));
      ++stats_.accepted;
      changed_.notify_all();
      return true;
    }
    ++(stop_ ? stats_.dropped_stop : stats_.dropped_deadline);
  }
  Tell(job, absl::DeadlineExceededError("the writer had no room in time"));
  return false;
}

absl::Status StoreWriter::Drain(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool empty = changed_.wait_until(lock, deadline, [&] {
    return !busy_ && offers_.jobs.empty() && spills_.jobs.empty();
  });
  return empty ? absl::OkStatus()
               : absl::DeadlineExceededError("the writer is not idle");
}

void StoreWriter::Stop() {
  std::deque<WriteJob> left;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (Queue* queue : {&spills_, &offers_}) {
      stats_.dropped_stop += queue->jobs.size();
      for (WriteJob& job : queue->jobs) left.push_back(std::move(job));
      *queue = Queue();
    }
  }
  changed_.notify_all();
  for (WriteJob& job : left) {
    Tell(job, absl::CancelledError("the writer stops"));
  }
  if (thread_.joinable()) thread_.join();
}

StoreWriterStats StoreWriter::stats() const {
  const std::lock_guard lock(mutex_);
  StoreWriterStats stats = stats_;
  stats.queued_jobs = offers_.jobs.size() + spills_.jobs.size();
  stats.queued_bytes = offers_.bytes + spills_.bytes;
  return stats;
}

void StoreWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return stop_ || !spills_.jobs.empty() || !offers_.jobs.empty();
    });
    if (stop_) return;
    const bool limited = spills_.jobs.empty();
    Queue& queue = limited ? offers_ : spills_;
    {
      WriteJob job = std::move(queue.jobs.front());
      queue.jobs.pop_front();
      queue.bytes -= BytesOf(job.write);
      busy_ = true;
      lock.unlock();
      changed_.notify_all();
      Write(job, limited);
    }  // the job's memory is given back before the writer counts as idle
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void StoreWriter::Write(WriteJob& job, bool limited) {
  job.write.key_ids = job.key_ids;
  std::chrono::steady_clock::duration waited{};
  if (limited) {
    job.write.pace = [&](std::uint64_t bytes) {
      const auto before = std::chrono::steady_clock::now();
      Pace(bytes);
      waited += std::chrono::steady_clock::now() - before;
    };
  }
  const auto start = std::chrono::steady_clock::now();
  const auto result = store_.WriteManifest(job.write);
  const double seconds = std::chrono::duration<double>(
                             std::chrono::steady_clock::now() - start - waited)
                             .count();
  {
    const std::lock_guard lock(mutex_);
    ++(result.ok() ? stats_.written : stats_.failed);
    if (result.ok() && result->bytes_written > 0 && seconds > 0) {
      const auto rate = static_cast<std::uint64_t>(
          static_cast<double>(result->bytes_written) / seconds);
      std::uint64_t& mean = stats_.measured_bytes_per_second;
      mean = mean == 0 ? rate : (3 * mean + rate) / 4;
    }
  }
  Tell(job, result);
}

void StoreWriter::Pace(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const auto until = limiter_.Reserve(bytes, std::chrono::steady_clock::now());
  // A spill that waits behind this write is worth more than the rate.
  changed_.wait_until(lock, until,
                      [&] { return stop_ || !spills_.jobs.empty(); });
}

}  // namespace holdfast::cachesvc
