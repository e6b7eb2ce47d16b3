// The one thread that writes to the chunk store, behind bounded queues. Disk
// tier writes never hold anybody: when their queue is full they are dropped and
// counted. A spill may wait for room, up to its deadline, and goes before them.
#ifndef HOLDFAST_CACHESVC_WRITER_STORE_WRITER_H_
#define HOLDFAST_CACHESVC_WRITER_STORE_WRITER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/writer/rate_limiter.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

struct WriteJob {
  // Its key_ids are set by the writer, to the ones below.
  ManifestWrite write;
  std::vector<KeyId> key_ids;
  // Told once, from the writer's thread or from whoever drops the job, without
  // any lock held. Empty: nobody asks.
  std::function<void(const absl::StatusOr<WriteResult>&)> done;
};

struct StoreWriterOptions {
  std::size_t max_jobs = 64;  // of each queue
  // Of pool blocks and states that wait in each queue.
  std::uint64_t max_bytes = std::uint64_t{8} << 30;
  // Of disk tier writes; 0: no limit.
  std::uint64_t bytes_per_second = 1'000'000'000;
};

struct StoreWriterStats {
  std::uint64_t accepted = 0;
  std::uint64_t written = 0;
  std::uint64_t failed = 0;
  std::uint64_t dropped_full = 0;
  std::uint64_t dropped_deadline = 0;  // a spill that found no room in time
  std::uint64_t dropped_stop = 0;
  std::uint64_t queued_jobs = 0;
  std::uint64_t queued_bytes = 0;
  // Of the last writes, each at its own speed; 0 before the first.
  std::uint64_t measured_bytes_per_second = 0;
};

// Thread-safe. The store outlives it.
class StoreWriter {
 public:
  StoreWriter(ChunkStore& store, const StoreWriterOptions& options);
  ~StoreWriter();  // Stop()
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Of the disk tier. False: dropped; done() was told.
  bool Offer(WriteJob job);
  // Of a spill: waits for room until job.write.deadline at most. False: dropped
  // or stopped; done() was told.
  bool Spill(WriteJob job);
  // Until both queues are empty and nothing is being written.
  absl::Status Drain(Deadline deadline);
  // Drops what waits, lets the write under way end, and joins.
  void Stop();

  StoreWriterStats stats() const;

 private:
  struct Queue {
    std::deque<WriteJob> jobs;
    std::uint64_t bytes = 0;
  };

  bool Fits(const Queue& queue, std::uint64_t bytes) const;
  void Run();
  void Write(WriteJob& job, bool limited);
  void Pace(std::uint64_t bytes);

  ChunkStore& store_;
  const StoreWriterOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Queue offers_;  // guarded by mutex_, like all below
  Queue spills_;
  bool busy_ = false;
  bool stop_ = false;
  RateLimiter limiter_;
  StoreWriterStats stats_;

  std::thread thread_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_WRITER_STORE_WRITER_H_
