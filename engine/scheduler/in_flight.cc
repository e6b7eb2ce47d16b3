#include "engine/scheduler/in_flight.h"

#include <algorithm>

#include "shared/cache_layout.h"

namespace holdfast::engine {

int WaitPosition(const GridRule& rule, const PromptInFlight& owner,
                 std::span<const KeyId> prompt, int in_place) {
  // Who starts past the owner's rows is ahead of it.
  if (owner.rows < in_place) return 0;
  const auto ends = std::ranges::mismatch(prompt, owner.prompt);
  const int shared = static_cast<int>(ends.in1 - prompt.begin());
  // A grid backend's last chunk is the same only for the same prompt.
  const bool same =
      prompt.size() == owner.prompt.size() && ends.in1 == prompt.end();
  const int position = same ? shared : rule.SharedBelow(shared);
  const bool worth = position - in_place >= kBlockTokens;
  return worth && position > owner.rows ? position : 0;
}

bool ChunkWatch::Late(int rows, double chunk_seconds, TimePoint now) {
  if (rows / chunk_tokens_ != rows_ / chunk_tokens_) {
    rows_ = rows;
    since_ = now;
    return false;
  }
  return std::chrono::duration<double>(now - since_).count() >
         2 * chunk_seconds;
}

}  // namespace holdfast::engine
