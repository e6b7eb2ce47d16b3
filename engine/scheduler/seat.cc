#include "engine/scheduler/seat.h"

#include <algorithm>
#include <tuple>

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// Rows that the prompt shares with a resident that it goes on with; else 0.
int GoesOn(const Seat& seat, const PrefixKey& root,
           std::span<const KeyId> prompt, std::string_view session_key) {
  if (!seat.resident || seat.resident->root != root) return 0;
  const Sequence& resident = *seat.resident;
  const auto ends = std::ranges::mismatch(prompt, resident.ids);
  const int shared = static_cast<int>(ends.in1 - prompt.begin());
  const bool own = !session_key.empty() && session_key == resident.session_key;
  const int least = own ? std::min(kBlockTokens, resident.rows() / 2)
                        : (resident.rows() + 1) / 2;
  return shared >= least ? shared : 0;
}

}  // namespace

Seat* ChooseSeat(std::vector<Seat>& seats, const PrefixKey& root,
                 std::span<const KeyId> prompt, std::string_view session_key) {
  Seat* best = nullptr;
  // Higher is better: more shared, then less lost, then the older.
  using Rank = std::tuple<int, int, std::int64_t>;
  Rank best_rank;
  for (Seat& seat : seats) {
    if (seat.taken) continue;
    const int shared = GoesOn(seat, root, prompt, session_key);
    const int rows = seat.resident ? seat.resident->rows() : 0;
    // Where nothing is shared, all that counts is whether there is anything.
    const int lost = shared > 0 ? rows - shared : std::min(rows, 1);
    const Rank rank{shared, -lost, -static_cast<std::int64_t>(seat.last_use)};
    if (best != nullptr && rank <= best_rank) continue;
    best = &seat;
    best_rank = rank;
  }
  return best;
}

}  // namespace holdfast::engine
