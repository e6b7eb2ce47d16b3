// A request as the engine runs it, and what it answers. No proto types here:
// the service converts.
#ifndef HOLDFAST_ENGINE_SCHEDULER_REQUEST_H_
#define HOLDFAST_ENGINE_SCHEDULER_REQUEST_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/output/thinking_budget.h"
#include "engine/resume/plan.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"
#include "shared/sha256.h"

namespace holdfast::engine {

enum class CacheMode { kDefault, kBypass, kReadOnly };

struct Request {
  std::string id;  // for log lines
  // Whose conversation it is; empty: nobody's. For log lines, and on a grid
  // backend for the end of an answer, where only its own session resumes.
  std::string session_key;
  std::vector<std::int32_t> prompt;
  // Where its user messages and assistant headers start; ascending.
  std::vector<int> messages;
  // By which the gateway names the answer when it says what it sent; 0: never.
  std::uint64_t record_ticket = 0;
  // Start of the last user message before the first assistant's: where the next
  // session of the same folder parts. 0: not known.
  int head = 0;
  // Start of the first answer to the last user message, one of `messages`: many
  // templates take the reasoning out of all answers before a user message, so
  // the next one's prompt parts here. 0: not known.
  int turn = 0;
  std::string salt;
  // The model that the prompt's ids were made for; nothing: not checked.
  std::optional<Sha256Digest> fingerprint;
  CacheMode cache_mode = CacheMode::kDefault;
  SamplingParams sampling;
  int max_tokens = 0;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  std::optional<ThinkingLimit> thinking;
  std::optional<int> top_logprobs;
  std::optional<std::vector<std::int32_t>> forced;  // debug engines only
  // Behind the last forced id the answer stands still until it is cancelled.
  bool hold = false;
  bool digest = false;  // debug engines only
};

// Why a request was not run.
struct Refusal {
  enum class Reason {
    kQueueFull,
    kDraining,
    kContextOverflow,
    kInvalid,
    kOutOfBlocks,
    kDebugOnly,
    kModelChanged,
  };
  Reason reason = Reason::kInvalid;
  std::string message;
  int retry_after_ms = 0;
  int max_context = 0;  // for kContextOverflow
};

struct CacheReport {
  CacheSource source = CacheSource::kNone;
  int resumed_at = 0;       // rows taken from the cache
  int restored = 0;         // of them from a tier; the others from the pool
  SourceRows rows_of = {};  // those from the pool
  int computed = 0;         // prompt rows forwarded
  MissReason miss = MissReason::kNone;
  std::optional<AnchorKind> anchor;  // what was resumed at; none: rows alone
  int anchors_taken = 0;             // by the prefill
};

// Where the rows of a prompt came from, those computed left out.
SourceRows CachedBySource(const CacheReport& cache);

struct OutputToken {
  std::int32_t id = 0;
  bool hidden = false;  // the thinking budget's word, not the model's
  std::optional<Logprobs> logprobs;
};

struct Digests {
  Sha256Digest first_logits{};
  std::optional<Sha256Digest> resumed;
  Sha256Digest prompt_end{};
  Sha256Digest end{};
  // The lowest row of provenance `session` of the state behind the last row.
  std::optional<int> taint;
};

enum class FinishReason { kStop, kStopString, kLength, kCancelled, kError };
const char* FinishReasonName(FinishReason reason);

struct Timing {
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};

struct Result {
  FinishReason reason = FinishReason::kStop;
  int stop_string_index = 0;
  CacheReport cache;
  int prompt_tokens = 0;
  int output_tokens = 0;
  int preemptions = 0;        // times it lost its seat to an older request
  int recomputed = 0;         // rows forwarded again after one
  int chosen_by_backend = 0;  // output tokens whose logits stayed with it
  // A cold run answers so too: no row of the prompt is of provenance `session`,
  // and none of the answer's was lost to a preemption on a grid.
  bool as_cold = true;
  Timing timing;
  std::optional<Digests> digests;
  std::string error;  // for kError
};

// Where a request's events go. Calls come one at a time, from the engine thread
// (a refusal or the end of a request that never ran: from any thread), and must
// not block. OnRefused or OnFinished is the last one.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnRefused(const Refusal& refusal) = 0;
  virtual void OnProgress(int done, int total) = 0;
  virtual void OnStarted(const CacheReport& cache, const Timing& timing) = 0;
  // False: the receiver does not keep up and the request must end.
  [[nodiscard]] virtual bool OnToken(const OutputToken& token) = 0;
  virtual void OnFinished(const Result& result) = 0;
};

// A request on its way. Shared by whoever may cancel it and by the engine.
struct Job {
  Job(Request request, std::shared_ptr<EventSink> sink)
      : request(std::move(request)), sink(std::move(sink)) {}

  const Request request;
  const std::shared_ptr<EventSink> sink;
  const std::chrono::steady_clock::time_point submitted =
      std::chrono::steady_clock::now();
  std::atomic<bool> cancelled{false};
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_REQUEST_H_
