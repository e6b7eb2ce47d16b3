// What both pools do alike with one request: the progress of a transfer and
// what its end means.
#ifndef HOLDFAST_CACHESVC_IO_TRANSFER_H_
#define HOLDFAST_CACHESVC_IO_TRANSFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "cachesvc/io/io_pool.h"

namespace holdfast::cachesvc {

struct AtomicIoStats {
  std::atomic<std::uint64_t> reads{0}, writes{0}, syncs{0}, read_bytes{0},
      written_bytes{0}, fixed{0}, resubmitted{0}, failed{0};
  IoStats Get() const;
};

// One request of a batch, until it has ended. Not thread-safe.
class Transfer {
 public:
  Transfer(IoRequest request, std::shared_ptr<IoBatch> batch, std::size_t index)
      : request_(std::move(request)), batch_(std::move(batch)), index_(index) {}

  const IoRequest& request() const { return request_; }
  std::uint64_t offset() const { return request_.offset + done_; }
  std::byte* memory() const { return request_.memory + done_; }
  std::size_t bytes() const { return request_.bytes - done_; }

  // `moved` bytes of the rest went through. Returns what the request ended
  // with, or nothing when it must go on with what is left.
  std::optional<absl::Status> Moved(std::size_t moved);
  // Reports to the batch and counts.
  void End(absl::Status status, AtomicIoStats& stats);

 private:
  IoRequest request_;
  std::shared_ptr<IoBatch> batch_;
  std::size_t index_;
  std::size_t done_ = 0;
};

// Of a request that no pool may start: memory, offset or size that direct I/O
// cannot move.
absl::Status CheckRequest(const IoRequest& request);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_IO_TRANSFER_H_
