#include "shared/attach/wake_fd.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace holdfast::attach {

absl::StatusOr<WakeFd> WakeFd::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return absl::ErrnoToStatus(errno, "eventfd");
  return WakeFd(std::move(fd));
}

void WakeFd::Set() {
  // Fails only when the counter is full: then it is set already.
  (void)eventfd_write(fd_.get(), 1);
}

void WakeFd::Clear() {
  eventfd_t count = 0;
  (void)eventfd_read(fd_.get(), &count);  // fails when it was not set
}

}  // namespace holdfast::attach
