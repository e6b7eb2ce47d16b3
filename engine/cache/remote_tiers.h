// The tiers of the attached cache service.
#ifndef HOLDFAST_ENGINE_CACHE_REMOTE_TIERS_H_
#define HOLDFAST_ENGINE_CACHE_REMOTE_TIERS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cache/restore_call.h"
#include "engine/cache/restore_threads.h"
#include "engine/cache/store_queue.h"
#include "engine/cache/tiers.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_client.h"

namespace holdfast::engine {

// Bytes come through the staging memory, never through a call. A cache service
// that dies, stops or restarts costs its deadlines and nothing else: each call
// has one, and after a late lookup no other is tried for a while.
class RemoteTiers final : public CacheTiers {
 public:
  // `client` outlives this. `lookup`: the deadline of what a request waits for.
  explicit RemoteTiers(const attach::AttachClient& client,
                       std::chrono::milliseconds lookup = deadlines::kLookup);

  bool attached() const override { return client_.session() != nullptr; }
  void NoteMeasured(const PlannerRates& rates) override { measured_ = rates; }
  TierLookup Lookup(const PromptView& prompt) override;
  AdmittedLines Admit(const PromptView& prompt, int resumed_at,
                      const std::string& session_key, int head) override;
  std::unique_ptr<TierRestore> StartRestore(RestoreJob job) override;
  void Store(StoreJob job, std::function<void(StoreOutcome)> done) override {
    stores_.Add(std::move(job), std::move(done));
  }
  std::uint64_t FreeStore(std::uint64_t bytes) override;
  void Drained() override;
  std::vector<KeptResident> Residents() override;

 private:
  using Time = std::chrono::steady_clock::time_point;

  // The open attach, with a stub for it; null when there is none.
  const attach::AttachSession* Session();
  const attach::AttachClient& client_;
  const std::chrono::milliseconds lookup_;
  // Of the engine thread.
  std::shared_ptr<const attach::AttachSession> session_;
  std::unique_ptr<v1::Cache::Stub> stub_;  // of session_
  std::uint64_t next_restore_;             // another engine's begin elsewhere
  std::shared_ptr<EndedRestores> ended_;   // of session_
  Time quiet_until_;                       // nothing is asked before
  PlannerRates measured_;                  // goes with the next lookup

  RestoreThreads restores_;
  StoreQueue stores_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_REMOTE_TIERS_H_
