// What of one prefill goes to the disk tier and the state store.
#ifndef HOLDFAST_ENGINE_SCHEDULER_LINE_STORES_H_
#define HOLDFAST_ENGINE_SCHEDULER_LINE_STORES_H_

#include <deque>
#include <utility>
#include <vector>

#include "engine/cache/tiers.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"

namespace holdfast::engine {

// The lines are chosen before the first step, by the cache service, which
// counts those that are read cold. As the prefill passes one, or where it
// starts at one, its state is
// copied into blocks of the pool and they are leased together with the rows;
// the stores are queued once the prompt is done, so that they are written while
// the request decodes. A line that finds no room in the pool or the lease table
// is left out. Used once, on the engine thread.
class LineStores {
 public:
  // `sequence` has been resumed. Nothing is asked or stored for a request that
  // leaves no trace, and without tiers. Arguments outlive this.
  LineStores(EngineState& state, const Request& request,
             const PromptView& prompt, const Sequence& sequence);
  // Leases of lines that were not submitted end.
  ~LineStores();

  // To be called after each step.
  void Reached();
  // Queues the stores of the lines that were passed.
  void Submit();

 private:
  bool Stage(Tier tier, int position);

  EngineState& state_;
  const Request& request_;
  const PromptView& prompt_;
  const Sequence& sequence_;
  // Ascending; not passed yet. A line may be of both tiers.
  std::deque<std::pair<int, Tier>> lines_;
  std::vector<StoreJob> staged_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_LINE_STORES_H_
