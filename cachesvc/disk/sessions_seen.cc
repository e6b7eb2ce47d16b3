#include "cachesvc/disk/sessions_seen.h"

namespace holdfast::cachesvc {

bool SessionsSeen::Add(const Sha256Digest& session) {
  const std::lock_guard lock(mutex_);
  if (!seen_.insert(session).second) return false;
  order_.push_back(session);
  if (order_.size() > kMost) {
    seen_.erase(order_.front());
    order_.pop_front();
  }
  return true;
}

}  // namespace holdfast::cachesvc
