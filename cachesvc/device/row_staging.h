// Host memory that rows of a device are copied to on their way on.
#ifndef HOLDFAST_CACHESVC_DEVICE_ROW_STAGING_H_
#define HOLDFAST_CACHESVC_DEVICE_ROW_STAGING_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "shared/aligned_buffer.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

// A few pieces of equal size, made once. Thread-safe; shared by all who hold a
// piece.
class RowStaging : public std::enable_shared_from_this<RowStaging> {
 public:
  RowStaging(std::size_t pieces, std::size_t piece_bytes);

  std::size_t piece_bytes() const { return piece_bytes_; }
  std::size_t bytes() const { return pieces_.size() * piece_bytes_; }
  std::vector<std::span<std::byte>> pieces();

  // Page-aligned memory of piece_bytes(), the caller's until the last copy of
  // the pointer goes. Null: none came free by the deadline.
  std::shared_ptr<std::byte> Take(Deadline deadline);

 private:
  void GiveBack(std::byte* piece);

  const std::size_t piece_bytes_;
  std::vector<AlignedBuffer> pieces_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte*> free_;  // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_ROW_STAGING_H_
