// Everything between a configuration and an engine that serves.
#ifndef HOLDFAST_ENGINE_STARTUP_H_
#define HOLDFAST_ENGINE_STARTUP_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/backend/choose_backend.h"
#include "engine/backend/memory_table.h"
#include "engine/cache/doorbell.h"
#include "engine/cache/planner_costs.h"
#include "engine/cache/record_source.h"
#include "engine/cache/remote_tiers.h"
#include "engine/config.h"
#include "engine/model/model.h"
#include "engine/pool/pool_memory.h"
#include "engine/pool/pool_size.h"
#include "engine/response/response_cache.h"
#include "engine/scheduler/scheduler.h"
#include "engine/service/engine_service.h"
#include "shared/arena/device_pool.h"
#include "shared/attach/attach_client.h"

namespace holdfast::engine {

// A loaded model with its pool, its engine thread and its attach. Destroying it
// stops the thread and detaches; the server must have been shut down before.
class LoadedEngine {
 public:
  // Loads the model (minutes, for a large one), makes the pool and starts. The
  // error says what of the model or the machine is at fault; kInvalidArgument,
  // kNotFound, kOutOfRange, kUnimplemented: of the configuration, which only
  // they could show.
  static absl::StatusOr<std::unique_ptr<LoadedEngine>> Load(
      const Config& config, ChosenBackend backend);

  // What the service tells and gives away; `base` has the process's fields.
  EngineService::Serving Serving(const v1::EngineStatus& base);
  Scheduler& scheduler() { return *scheduler_; }
  std::uint64_t pool_bytes() const { return pool_memory_->bytes(); }
  bool on_device() const { return pool_memory_->on_device(); }
  // The device has failed for good: the process must end. Any thread.
  bool device_lost() { return chosen_.backend().lost(); }

 private:
  LoadedEngine() = default;

  // Before any of it is taken: on a board it is everybody's memory.
  absl::Status CheckWeightsFit(const Config& config);
  absl::Status LoadModel(const Config& config);
  absl::Status MakePool(const Config& config);
  absl::Status MakeDevicePool(const Config& config, const PoolPlan& plan,
                              DeviceMemoryPlan memory);
  absl::Status StartAttach(const Config& config);
  absl::Status MakeCosts(const Config& config);
  absl::Status StartThreads(const Config& config);

  std::unique_ptr<Tiering> MakeTiering(BlockPool& pool);

  ChosenBackend chosen_;
  std::unique_ptr<model::Model> model_;
  TokenizerSpec tokenizer_;
  std::string served_name_;
  Sha256Digest fingerprint_{};
  int max_context_ = 0;
  int blocks_ = 0;
  int anchor_slots_ = 0;
  std::unique_ptr<PoolMemory> pool_memory_;
  std::unique_ptr<PinnedHostMemory> pinned_;  // of pool_memory_
  std::optional<DevicePool> device_pool_;     // of pool_memory_; none: pinned
  // Rings when the attach changes.
  const std::shared_ptr<Doorbell> attached_ = std::make_shared<Doorbell>();
  // Null, all of them: without a cache service. Destroyed after the scheduler,
  // which calls them.
  std::unique_ptr<attach::AttachClient> attach_;
  std::unique_ptr<PlannerCosts> costs_;
  std::unique_ptr<RemoteTiers> tiers_;
  std::unique_ptr<RecordSource> record_source_;
  std::unique_ptr<ResponseCache> responses_;  // null: off
  std::unique_ptr<Scheduler> scheduler_;
};

// The status fields known before the model is.
v1::EngineStatus ProcessStatus(const Config& config);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_STARTUP_H_
