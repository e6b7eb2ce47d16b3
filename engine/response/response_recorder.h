// Keeps an answer for the response cache while it is sent, and sends one again.
#ifndef HOLDFAST_ENGINE_RESPONSE_RESPONSE_RECORDER_H_
#define HOLDFAST_ENGINE_RESPONSE_RESPONSE_RECORDER_H_

#include <memory>

#include "engine/response/response_cache.h"
#include "engine/scheduler/request.h"

namespace holdfast::engine {

// Passes every event on; an answer that came to its end by itself, and that a
// cold run gives too, is added to the cache before its last event is passed on,
// so that a client that has all of it finds it there. `cache` outlives it.
class ResponseRecorder final : public EventSink {
 public:
  ResponseRecorder(std::shared_ptr<EventSink> to, ResponseCache* cache,
                   const Sha256Digest& key)
      : to_(std::move(to)), cache_(*cache), key_(key) {}

  void OnRefused(const Refusal& refusal) override { to_->OnRefused(refusal); }
  void OnProgress(int done, int total) override {
    to_->OnProgress(done, total);
  }
  void OnStarted(const CacheReport& cache, const Timing& timing) override {
    to_->OnStarted(cache, timing);
  }
  [[nodiscard]] bool OnToken(const OutputToken& token) override;
  void OnFinished(const Result& result) override;

 private:
  const std::shared_ptr<EventSink> to_;
  ResponseCache& cache_;
  const Sha256Digest key_;
  Response response_;
  std::uint64_t bytes_ = 0;
  bool too_long_ = false;
};

// Sends the tokens of a response that was kept, and what comes before them, but
// not the last event. Returns what that one is to say: every prompt row from
// the response cache, nothing computed.
Result SendResponse(const Response& response, EventSink& to);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESPONSE_RESPONSE_RECORDER_H_
