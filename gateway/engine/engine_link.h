// The gateway's view of the engine: whether it is there, what it serves, and
// calls to it. It may come, go and be replaced at any time.
#ifndef HOLDFAST_GATEWAY_ENGINE_ENGINE_LINK_H_
#define HOLDFAST_GATEWAY_ENGINE_ENGINE_LINK_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "gateway/engine/grpc_await.h"
#include "gateway/engine/signal.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "holdfast/v1/tokenizer.pb.h"
#include "shared/deadlines.h"

namespace holdfast::gateway {

// What requests need of a model besides the engine (tokenizer, template). The
// link carries it and never looks inside.
class ServedModel;

struct EngineLinkOptions {
  std::string socket;  // DIR/engine.sock
  std::chrono::milliseconds poll = deadlines::kEnginePoll;
  std::chrono::milliseconds retry = deadlines::kEngineRetry;
  std::chrono::milliseconds control = deadlines::kControl;
  std::chrono::milliseconds silent = deadlines::kEngineSilent;
  std::chrono::milliseconds stall = deadlines::kEngineStall;
  std::chrono::milliseconds queue = deadlines::kEngineQueue;
};

enum class EngineState { kAbsent, kLoading, kServing, kDraining, kUnusable };
const char* EngineStateName(EngineState state);

// One look at the engine.
struct EngineView {
  EngineState state = EngineState::kAbsent;
  std::string detail = "the engine has not answered yet";
  // The last answer; kept while the engine is absent.
  v1::EngineStatus status;
  // Set from the first time the engine served; kept while it is absent.
  std::shared_ptr<const ServedModel> model;
  std::string fingerprint;  // the model's
};

class GenerateStream;

// Everything runs on the io thread. Destroy it after Stop, when the context
// has stopped running.
class EngineLink {
 public:
  // Called on the io thread with what the engine sent; the awaitable may use
  // other threads. FAILED_PRECONDITION and the like make the engine unusable
  // until another one comes.
  using BuildModel = std::function<boost::asio::awaitable<
      absl::StatusOr<std::shared_ptr<const ServedModel>>>(
      v1::Tokenizer tokenizer, v1::EngineStatus status)>;

  EngineLink(boost::asio::io_context& io, EngineLinkOptions options,
             BuildModel build_model);
  ~EngineLink();
  EngineLink(const EngineLink&) = delete;
  EngineLink& operator=(const EngineLink&) = delete;

  // Begins to watch the engine.
  void Start();
  // Ends the watch and fails the waiters. Then Tracker().WaitForNone.
  void Stop();
  const std::shared_ptr<CallTracker>& tracker() const { return tracker_; }

  const EngineView& view() const { return view_; }

  // Waits for an engine that serves. UNAVAILABLE with the reason at `until` and
  // when the engine is unusable, CANCELLED when `give_up` says so (looked at on
  // every Wake).
  boost::asio::awaitable<absl::StatusOr<EngineView>> WaitReady(
      SteadyTime until, std::function<bool()> give_up);
  // From now on an engine that does not serve is not waited for.
  void EndWaits();
  // Lets waiters look at their give_up.
  void Wake() { changed_.NotifyAll(); }
  // Looks at the engine now instead of at the next poll.
  void Poke();
  // The engine has another model than `fingerprint`: no waiter is let through
  // with it until the next look.
  void ForgetModel(const std::string& fingerprint);
  // The engine refused because it is stopping: no waiter is let through to it
  // until the next look.
  void NoteDraining();

  std::unique_ptr<GenerateStream> Generate(v1::GenerateRequest request);
  // Session records; both wait deadlines::kRecords at most, and nothing
  // depends on them but what is reused.
  boost::asio::awaitable<absl::StatusOr<v1::GetRecordsResponse>> GetRecords(
      v1::GetRecordsRequest request);
  boost::asio::awaitable<absl::StatusOr<v1::RecordTurnResponse>> RecordTurn(
      v1::RecordTurnRequest request);
  // The engine's metrics as Prometheus text.
  boost::asio::awaitable<absl::StatusOr<std::string>> Metrics();
  boost::asio::awaitable<absl::StatusOr<v1::EngineStats>> Stats();
  // Waits behind a running request, no longer than deadlines::kCacheClear.
  boost::asio::awaitable<absl::StatusOr<v1::ClearCacheResponse>> ClearCache(
      v1::ClearCacheRequest request);

 private:
  friend class GenerateStream;

  boost::asio::awaitable<void> Watch();
  boost::asio::awaitable<void> Look();
  boost::asio::awaitable<void> LoadModel(const v1::EngineStatus& status);
  boost::asio::awaitable<absl::StatusOr<v1::Tokenizer>> FetchTokenizer(
      const std::string& fingerprint);
  // A call failed: the engine counts as absent until it answers again.
  void Suspect(std::string detail);
  void SetState(EngineState state, std::string detail);

  boost::asio::io_context& io_;
  const EngineLinkOptions options_;
  const BuildModel build_model_;
  const std::shared_ptr<CallTracker> tracker_;
  std::unique_ptr<v1::Engine::Stub> stub_;
  EngineView view_;
  std::uint32_t unusable_pid_ = 0;  // of the engine that was found unusable
  SteadyTime last_answer_;
  bool stopped_ = false;
  bool waits_end_ = false;
  Signal changed_;  // view_ changed, or waiters shall look
  Signal poked_;    // the watch shall look
};

// One request that the engine runs. Destroying it cancels the request.
class GenerateStream {
 public:
  // The next event; nothing when none came before `until` (ask again). The last
  // one is `finished` or `refused`. Errors: CANCELLED after Cancel, UNAVAILABLE
  // when the engine died or ended early, DEADLINE_EXCEEDED when it is stuck.
  boost::asio::awaitable<absl::StatusOr<std::optional<v1::GenerateEvent>>> Next(
      SteadyTime until);
  // Stops the engine at its next step; wakes a waiting Next.
  void Cancel() { call_.Cancel(); }

 private:
  friend class EngineLink;
  GenerateStream(EngineLink& link, v1::GenerateRequest request);
  absl::Status Stuck(SteadyTime now) const;

  EngineLink& link_;
  v1::GenerateRequest request_;  // read by the call until it is sent
  StreamCall<v1::GenerateEvent> call_;
  SteadyTime last_event_;
  bool running_ = false;  // an event came: it is not queued any more
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_ENGINE_ENGINE_LINK_H_
