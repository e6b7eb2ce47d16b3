// Which anchors of a prompt the disk tier writes. Decided before the prefill,
// from how often each of its grid lines was read cold before.
#ifndef HOLDFAST_CACHESVC_ADMISSION_ADMISSION_H_
#define HOLDFAST_CACHESVC_ADMISSION_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"
#include "cachesvc/index/rows.h"
#include "shared/clock/clock.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

struct AdmissionRules {
  std::uint64_t min_tokens = 4096;  // of a prompt that may be written at all
  std::uint64_t admit_after = 2;
  // Anchors below the user message that opens a session.
  std::uint64_t session_lines = 4;
};

struct AdmissionRequest {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t grid_tokens = 0;
  // Where the prefill starts: lines above it are forwarded cold now.
  std::uint64_t resume_position = 0;
  // Rows at or above it are `session` and never written; kNoTaint: none.
  std::uint64_t taint = kNoTaint;
  // Of the first long request of a session: the start of its last user message
  // before the first assistant message.
  std::optional<std::uint64_t> opening_message;
  bool guest = false;  // never admitted, never counted
};

// One line of the prompt, ascending from the first.
struct LineState {
  LineRow row;             // as prompts before this one left it
  std::uint64_t next = 0;  // LineChild() of this prompt's next line; 0: ends
  bool has_anchor = false;
};

// What one line's key looks like as another's `child`; never 0.
std::uint64_t LineChild(const PrefixKey& key);

// Positions of the lines that get an anchor, ascending. Pure. `lines` are all
// lines of the prompt.
std::vector<std::uint64_t> PlanAnchors(const AdmissionRules& rules,
                                       const AdmissionRequest& request,
                                       std::span<const LineState> lines);

// Counts of lines in the index. Thread-safe.
class LineCounts {
 public:
  // `index` and `clock` outlive it.
  LineCounts(Index& index, const ServiceClock& clock)
      : index_(index), clock_(clock) {}

  // Counts as they are; changes nothing.
  absl::StatusOr<std::vector<LineRow>> Get(
      std::span<const PrefixKey> lines) const;
  // One more prompt passes `lines` (all of its lines); those above
  // `resume_position` are counted, the others only learn which way it went.
  absl::Status Note(std::span<const PrefixKey> lines,
                    const AdmissionRequest& request);
  // Forgets lines that no prompt passed for `ttl_s`, and the oldest above
  // `most`. Returns how many went.
  absl::StatusOr<std::uint64_t> Prune(std::uint64_t ttl_s, std::size_t most);

 private:
  Index& index_;
  const ServiceClock& clock_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_ADMISSION_ADMISSION_H_
