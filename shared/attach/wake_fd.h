// Wakes a thread that polls: one eventfd, set by any thread.
#ifndef HOLDFAST_SHARED_ATTACH_WAKE_FD_H_
#define HOLDFAST_SHARED_ATTACH_WAKE_FD_H_

#include <utility>

#include "absl/status/statusor.h"
#include "shared/arena/unique_fd.h"

namespace holdfast::attach {

class WakeFd {
 public:
  static absl::StatusOr<WakeFd> Create();

  int fd() const { return fd_.get(); }  // readable after Set()
  void Set();
  void Clear();

 private:
  explicit WakeFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_WAKE_FD_H_
