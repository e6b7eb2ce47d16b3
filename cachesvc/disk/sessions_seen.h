// Which conversations have sent a long prompt before.
#ifndef HOLDFAST_CACHESVC_DISK_SESSIONS_SEEN_H_
#define HOLDFAST_CACHESVC_DISK_SESSIONS_SEEN_H_

#include <cstddef>
#include <deque>
#include <mutex>
#include <unordered_set>

#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

// In memory, bounded: after a restart a conversation counts as new once more,
// which costs a look at lines that have their anchors. Thread-safe.
class SessionsSeen {
 public:
  static constexpr std::size_t kMost = 65536;

  // True the first time.
  bool Add(const Sha256Digest& session);

 private:
  std::mutex mutex_;
  std::unordered_set<Sha256Digest, PrefixKeyHash> seen_;  // guarded by mutex_
  std::deque<Sha256Digest> order_;                        // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DISK_SESSIONS_SEEN_H_
