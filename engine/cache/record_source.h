// Session records that the cache service keeps with conversations.
#ifndef HOLDFAST_ENGINE_CACHE_RECORD_SOURCE_H_
#define HOLDFAST_ENGINE_CACHE_RECORD_SOURCE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/tiering.h"
#include "grpcpp/support/status.h"
#include "shared/attach/attach_client.h"
#include "shared/deadlines.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// Thread-safe; waits for nobody.
class RecordSource {
 public:
  using Done = std::function<void(const std::vector<std::string>& records)>;

  // Records on their way at once; of more, and while the cache service is late,
  // what is put is lost.
  static constexpr int kMostUnderWay = 16;

  // `client` outlives this and every call it made. `lookup`: Fetch's deadline.
  RecordSource(const attach::AttachClient& client,
               std::chrono::milliseconds lookup,
               std::shared_ptr<TierCounters> counters)
      : client_(client), lookup_(lookup), counters_(std::move(counters)) {}

  // `done` gets the records of the session, as bytes (record_bytes.h): none
  // where the cache service has none, is not there, or does not answer within
  // the deadline; after that it is not asked for a while. Called once, in place
  // or on another thread.
  void Fetch(const PrefixKey& root, const std::string& session_key, Done done);

  // The record of the conversation with these rows has become this: the state
  // store's entry of it is told, where the cache service is there. No more than
  // that entry's older record is lost, and counted, where it is slow: one that
  // did not answer within deadlines::kControl is told nothing for a while.
  void Put(const PrefixKey& root, const std::string& session_key,
           std::span<const std::int32_t> ids, std::string record);

 private:
  using Clock = std::chrono::steady_clock;

  // Shared with calls under way.
  struct Pause {
    // Begins where a call ended so.
    void After(grpc::StatusCode code);
    bool lasts() const;

    mutable std::mutex mutex;
    Clock::time_point until;  // guarded by mutex
  };

  const attach::AttachClient& client_;
  const std::chrono::milliseconds lookup_;
  const std::shared_ptr<TierCounters> counters_;
  const std::shared_ptr<Pause> pause_ = std::make_shared<Pause>();
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_RECORD_SOURCE_H_
