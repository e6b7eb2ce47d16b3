// One restore from the cache service, on a thread beside the engine's.
#ifndef HOLDFAST_ENGINE_CACHE_RESTORE_CALL_H_
#define HOLDFAST_ENGINE_CACHE_RESTORE_CALL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/cache/tiers.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_client.h"

namespace holdfast::engine {

// Restores of one attach that have ended and of which the cache service may not
// know: told until it has heard of them. Thread-safe, bounded.
class EndedRestores {
 public:
  void Add(const std::vector<std::uint64_t>& ids);
  std::vector<std::uint64_t> Take();

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> ids_;  // guarded by mutex_
};

// Asks for pieces and copies them to the target: host memory on the thread that
// reads, a device's in Poll(), for a backend is one thread's. Every call to the
// cache service ends at the job's deadline.
class RestoreCall {
 public:
  // The staging memory stays mapped as long as this lives, whatever happens.
  RestoreCall(std::shared_ptr<const attach::AttachSession> session,
              std::shared_ptr<EndedRestores> ended, std::uint64_t id,
              RestoreJob job);

  // The whole restore. Once, on any thread.
  void Run();
  // As TierRestore has it.
  std::optional<RestoreEnd> Poll();
  // The target is not written any more when this returns, which is soon: it
  // waits for a copy of one piece at most. Run ends by itself.
  void Abandon();

 private:
  using Time = std::chrono::steady_clock::time_point;

  absl::Status Begin(v1::Cache::Stub& stub);
  absl::Status ReadPieces(v1::Cache::Stub& stub);
  absl::Status Accept(const v1::RestoreNextResponse& response);
  // Is it what was asked for, and in bounds?
  absl::Status Check(const v1::RestorePiece& piece) const;
  absl::Status Copy(const v1::RestorePiece& piece);
  // Has the engine thread copy them, and waits.
  absl::Status HandOver(const v1::RestoreNextResponse& response);
  // Whether the pieces taken filled the target.
  absl::Status CheckFilled() const;
  void TellEnd(v1::Cache::Stub& stub);
  // Makes a call that Abandon cancels.
  template <typename Request, typename Response>
  absl::Status Call(v1::Cache::Stub& stub,
                    grpc::Status (v1::Cache::Stub::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response,
                    const char* what);

  const std::shared_ptr<const attach::AttachSession> session_;
  const std::shared_ptr<EndedRestores> ended_;
  const RestoreJob job_;  // its spans are not looked at once it is abandoned
  const std::uint64_t id_;
  const Time start_;
  const Time deadline_;
  const std::uint64_t rows_room_;
  const std::uint64_t state_room_;
  const std::uint64_t have_bytes_;
  v1::RestoreBeginRequest begin_;
  // Taken: of the thread that runs, and handed over with the pieces.
  std::uint64_t row_bytes_ = 0;
  std::uint64_t state_bytes_ = 0;

  std::mutex copy_mutex_;  // held while the target is written
  std::atomic<bool> abandoned_{false};
  std::mutex mutex_;  // guards everything below
  std::condition_variable taken_;
  grpc::ClientContext* calling_ = nullptr;
  const v1::RestoreNextResponse* handed_ = nullptr;  // for the engine thread
  absl::Status copied_;                              // of what was handed over
  std::optional<RestoreEnd> end_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_RESTORE_CALL_H_
