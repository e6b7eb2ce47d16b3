// POST /v1/chat/completions and /v1/completions.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "gateway/answer/answer_parser.h"
#include "gateway/openai/error.h"
#include "gateway/openai/json.h"
#include "gateway/openai/response.h"
#include "gateway/service/answer_text.h"
#include "gateway/service/answer_writer.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/engine_wait.h"
#include "gateway/service/generation.h"
#include "gateway/service/record_protos.h"
#include "gateway/service/replies.h"
#include "gateway/service/served_model.h"
#include "gateway/service/workers.h"
#include "shared/deadlines.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using openai::ApiError;
using openai::ApiOr;
using openai::Json;
using std::chrono::steady_clock;

constexpr std::uint32_t kRetryAfterMs = 1000;
// Log lines name a request whose client left with this code.
constexpr int kClientClosedRequest = 499;
// A request is made ready a second time when the engine was replaced by one
// with another model meanwhile, is stopping, or was gone before it gave a sign
// of life. Not more often: a request that kills engines must not go on doing
// so.
constexpr int kAttempts = 2;

// Never sent.
ApiError Gone() { return openai::InternalError("the client has gone"); }

std::uint32_t CachedTokens(const v1::CacheReport& report) {
  std::uint32_t sum = 0;
  for (const auto& [source, tokens] : report.cached_tokens_by_source())
    sum += tokens;
  return sum;
}

// One request from its parsed body to the end of its answer.
class Run {
 public:
  Run(Call call, Endpoint endpoint, Json body)
      : app_(call.app),
        exchange_(call.exchange),
        record_(call.record),
        endpoint_(endpoint),
        body_(std::move(body)) {}

  asio::awaitable<void> Answer();

 private:
  // False: the engine has changed, try again. Else an answer was sent, or there
  // is nobody to send it to.
  asio::awaitable<bool> Attempt(bool last);
  asio::awaitable<ApiOr<Prepared>> MakeReady();
  // The session's records, as far as they are of use and come in time.
  asio::awaitable<Records> GetRecords(const Parsed& parsed);
  // Tells the engine what was sent; `ended`: by the engine's word.
  asio::awaitable<void> RecordSent(bool ended);
  openai::AnswerHead MakeHead();
  asio::awaitable<bool> Generate(Prepared prepared, bool last);
  asio::awaitable<bool> Follow(GenerateStream& stream, bool last);
  // True: the stream of events has ended.
  asio::awaitable<bool> Take(const v1::GenerateEvent& event);
  asio::awaitable<void> Finished(const v1::Finished& finished);
  openai::HoldfastReport Report(const v1::Finished& finished) const;

  App& app_;
  http::Exchange& exchange_;
  RequestRecord& record_;
  const Endpoint endpoint_;
  Json body_;

  EngineView view_;
  openai::CommonRequest common_;
  std::optional<std::uint64_t> seed_;
  std::vector<std::uint32_t> prompt_ids_;  // debug engines only
  std::optional<std::vector<align::Rule>> aligned_;
  std::size_t answer_begin_ = 0;
  v1::RecordTurnRequest told_;  // without a ticket: nothing to tell
  answer::AnswerFormat format_;
  std::optional<AnswerText> text_;
  std::optional<AnswerWriter> writer_;
};

asio::awaitable<void> Run::Answer() {
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const bool done = co_await Attempt(attempt == kAttempts);
    if (done) break;
  }
  if (exchange_.gone()) {
    record_.client_gone = true;
    record_.status = kClientClosedRequest;
    co_await RecordSent(/*ended=*/false);
  }
}

asio::awaitable<bool> Run::Attempt(bool last) {
  auto view = co_await WaitForEngine(app_, exchange_);
  if (exchange_.gone()) co_return true;
  if (!view.ok()) {
    ApiError error = view.error();
    co_await SendError(exchange_, record_, std::move(error));
    co_return true;
  }
  view_ = *std::move(view);
  auto prepared = co_await MakeReady();
  if (exchange_.gone()) co_return true;
  if (!prepared.ok()) {
    ApiError error = prepared.error();
    co_await SendError(exchange_, record_, std::move(error));
    co_return true;
  }
  Prepared ready = *std::move(prepared);
  co_return co_await Generate(std::move(ready), last);
}

asio::awaitable<ApiOr<Prepared>> Run::MakeReady() {
  PrepareInput input;
  input.endpoint = endpoint_;
  input.body = &body_;
  input.session = openai::SessionHeaders(
      [this](std::string_view name) { return exchange_.request().Find(name); });
  input.request_id = record_.id;
  input.view = &view_;
  input.answers = app_.answers.get();
  input.random = app_.random();
  input.record_ticket = app_.random() | 1;
  input.align = app_.config.end_align;
  input.align_reasoning = app_.config.end_align_reasoning;
  input.thinking_budget = app_.config.thinking_budget;
  auto parsed = co_await OnWorker(*app_.workers, [&] { return Parse(input); });
  if (exchange_.gone()) co_return Gone();
  if (!parsed.ok()) co_return parsed.error();
  const Records records = co_await GetRecords(*parsed);
  const GoneFlag flag(exchange_);
  input.stop = &flag.gone();
  co_return co_await OnWorker(*app_.workers, [&]() -> ApiOr<Prepared> {
    if (flag.gone()) return Gone();  // while it waited for a worker
    return Prepare(input, *std::move(parsed), records);
  });
}

asio::awaitable<Records> Run::GetRecords(const Parsed& parsed) {
  if (!parsed.wants_records) co_return Records();
  const SessionName name{view_.fingerprint, parsed.common().cache_salt,
                         parsed.session_key};
  v1::GetRecordsRequest request;
  request.set_salt(name.salt);
  request.set_session_key(name.key);
  request.set_peek(parsed.common().cache_mode != openai::CacheMode::kDefault);
  const auto known = app_.records.FillKnown(name, &request);
  const auto response = co_await app_.engine->GetRecords(std::move(request));
  if (!response.ok()) co_return Records();  // then the text is served as sent
  co_return app_.records.Take(name, known, *response);
}

asio::awaitable<void> Run::RecordSent(bool ended) {
  if (!text_.has_value() || told_.record_ticket() == 0 ||
      text_->sent().tokens() == 0)
    co_return;
  ToProto(text_->sent().Finish({.begin = answer_begin_,
                                .prompt = record_.prompt_tokens,
                                .ended = ended}),
          told_.mutable_turn());
  // Where it does not arrive, the next turn resumes at an earlier anchor.
  v1::RecordTurnRequest told = std::move(told_);
  told_.Clear();
  (void)co_await app_.engine->RecordTurn(std::move(told));
}

openai::AnswerHead Run::MakeHead() {
  openai::AnswerHead head;
  head.id = endpoint_ == Endpoint::kChat
                ? openai::ChatId(app_.random(), app_.random())
                : openai::CompletionId(app_.random(), app_.random());
  head.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  head.model = view_.status.model_name();
  head.system_fingerprint = openai::SystemFingerprint(view_.fingerprint);
  return head;
}

asio::awaitable<bool> Run::Generate(Prepared prepared, bool last) {
  common_ = std::move(prepared.common);
  aligned_ = std::move(prepared.aligned);
  answer_begin_ = prepared.answer_begin;
  told_.set_salt(prepared.request.salt());
  told_.set_session_key(prepared.request.session_key());
  told_.set_record_ticket(prepared.request.record_ticket());
  record_.stream = common_.stream;
  record_.prompt_tokens =
      static_cast<std::uint32_t>(prepared.request.prompt_ids_size());
  if (common_.sampling.temperature > 0)
    seed_ = prepared.request.sampling().seed();
  if (view_.status.debug()) {
    prompt_ids_.assign(prepared.request.prompt_ids().begin(),
                       prepared.request.prompt_ids().end());
  }
  const bool chat = endpoint_ == Endpoint::kChat;
  format_ = chat ? view_.model->format() : answer::AnswerFormat();
  text_.emplace(view_.model->tokenizer(), common_,
                answer::AnswerParser(format_, chat && prepared.in_reasoning,
                                     std::move(prepared.tools)));
  writer_.emplace(exchange_, record_, endpoint_, MakeHead(), common_.stream,
                  common_.include_usage,
                  std::chrono::milliseconds(app_.config.sse_keep_alive_ms));
  const std::unique_ptr<GenerateStream> stream =
      app_.engine->Generate(std::move(prepared.request));
  const http::OnGoneScope cancel(exchange_, [&stream] { stream->Cancel(); });
  co_return co_await Follow(*stream, last);
}

asio::awaitable<bool> Run::Follow(GenerateStream& stream, bool last) {
  // A refusal comes at once and has a status code of its own; anything else
  // that takes longer gets the head of its stream now.
  SteadyTime until = steady_clock::now() + deadlines::kRefusal;
  bool fresh = !last;  // nothing came and nothing was sent: may be tried again
  while (true) {
    auto event = co_await stream.Next(until);
    if (exchange_.gone()) co_return true;
    if (!event.ok()) {
      if (fresh && absl::IsUnavailable(event.status())) co_return false;
      ApiError error = openai::Unavailable(
          std::string(event.status().message()), kRetryAfterMs);
      co_await writer_->Fail(std::move(error));
      co_return true;
    }
    if (!event->has_value()) {
      absl::Status status = co_await writer_->Begin();
      if (status.ok()) status = co_await writer_->KeepAlive();
      if (!status.ok()) co_return true;
      fresh = fresh && !writer_->begun();
    } else {
      const v1::GenerateEvent& got = **event;
      if (fresh && got.refused().reason() == v1::Refused::MODEL_CHANGED) {
        app_.engine->ForgetModel(view_.fingerprint);
        co_return false;
      }
      if (fresh && got.refused().reason() == v1::Refused::DRAINING) {
        app_.engine->NoteDraining();  // the next one is waited for
        co_return false;
      }
      fresh = false;
      body_ = Json();  // a large body need not stay
      const bool done = co_await Take(got);
      if (done) co_return true;
    }
    until = writer_->SilentUntil();
  }
}

asio::awaitable<bool> Run::Take(const v1::GenerateEvent& event) {
  if (event.has_refused()) {
    ApiError error =
        RefusedError(event.refused(), endpoint_, record_.prompt_tokens);
    co_await writer_->Fail(std::move(error));
    co_return true;
  }
  if (event.has_finished()) {
    co_await Finished(event.finished());
    co_return true;
  }
  absl::Status status = co_await writer_->Begin();
  if (status.ok() && event.has_tokens()) {
    if (!record_.first_token_ms.has_value())
      record_.first_token_ms = record_.ElapsedMs();
    record_.output_tokens +=
        static_cast<std::uint32_t>(event.tokens().tokens_size());
    AnswerText::Part part = text_->Add(event.tokens());
    status = co_await writer_->Add(std::move(part));
  }
  if (status.ok()) status = co_await writer_->KeepAlive();
  co_return !status.ok();
}

asio::awaitable<void> Run::Finished(const v1::Finished& finished) {
  record_.cache_source = finished.cache().cache_source();
  record_.cached_tokens = CachedTokens(finished.cache());
  record_.output_tokens = finished.output_tokens();
  if (finished.reason() == v1::Finished::ERROR) {
    ApiError error = openai::InternalError(finished.error());
    co_await writer_->Fail(std::move(error));
    co_return;
  }
  if (finished.reason() == v1::Finished::CANCELLED) {
    ApiError error = openai::Unavailable(
        "the engine stopped before the answer was complete", kRetryAfterMs);
    co_await writer_->Fail(std::move(error));
    co_return;
  }
  absl::Status status = co_await writer_->Begin();
  AnswerText::Part rest = text_->Finish();
  // Before the client can send its next turn.
  co_await RecordSent(/*ended=*/true);
  if (status.ok()) status = co_await writer_->Add(std::move(rest));
  if (!status.ok()) co_return;
  openai::Usage usage{.prompt_tokens = finished.prompt_tokens(),
                      .completion_tokens = finished.output_tokens(),
                      .cached_tokens = record_.cached_tokens,
                      .reasoning_tokens = std::nullopt};
  if (format_.reasoning) usage.reasoning_tokens = text_->reasoning_tokens();
  openai::HoldfastReport report = Report(finished);
  auto reason = openai::FinishReason::kStop;
  if (text_->has_calls()) reason = openai::FinishReason::kToolCalls;
  if (finished.reason() == v1::Finished::LENGTH)
    reason = openai::FinishReason::kLength;
  (void)co_await writer_->Finish(reason, usage, std::move(report),
                                 common_.top_logprobs.has_value());
}

openai::HoldfastReport Run::Report(const v1::Finished& finished) const {
  const v1::CacheReport& cache = finished.cache();
  openai::HoldfastReport report;
  report.cache_source = cache.cache_source();
  for (const auto& [source, tokens] : cache.cached_tokens_by_source())
    report.cached_by_source[source] = tokens;
  report.anchor = cache.anchor();
  report.resumed_at_tokens = cache.resumed_at_tokens();
  report.computed_tokens = cache.computed_tokens();
  report.miss_reason = cache.miss_reason();
  report.prefill_ms = finished.prefill_ms();
  report.decode_ms = finished.decode_ms();
  report.queue_ms = finished.queue_ms();
  report.seed = seed_;
  if (aligned_.has_value()) {
    report.aligned.emplace();
    for (const align::Rule rule : *aligned_)
      report.aligned->emplace_back(align::RuleName(rule));
  }
  if (!view_.status.debug()) return report;
  report.prompt_ids = prompt_ids_;
  report.output_ids = text_->ids();
  if (common_.digest) {
    const v1::Digests& digests = finished.digests();
    report.digests = openai::DigestReport{
        digests.first_logits(), digests.resumed(), digests.prompt_end(),
        digests.end(),
        digests.has_taint() ? std::optional(digests.taint()) : std::nullopt};
  }
  return report;
}

asio::awaitable<void> Complete(Call call, Endpoint endpoint) {
  call.record.generation = true;
  std::string text = std::move(call.exchange.request().body);
  const auto parse = [&]() -> asio::awaitable<ApiOr<Json>> {
    const GoneFlag flag(call.exchange);
    co_return co_await OnWorker(*call.app.workers, [&]() -> ApiOr<Json> {
      if (flag.gone()) return Gone();
      auto json = openai::ParseJson(text);
      text = std::string();
      return json;
    });
  };
  auto body = co_await parse();
  if (call.exchange.gone()) {
    call.record.client_gone = true;
    call.record.status = kClientClosedRequest;
    co_return;
  }
  if (!body.ok()) {
    ApiError error = body.error();
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  Run run(call, endpoint, *std::move(body));
  co_await run.Answer();
}

}  // namespace

asio::awaitable<void> ChatCompletions(Call call) {
  return Complete(call, Endpoint::kChat);
}

asio::awaitable<void> Completions(Call call) {
  return Complete(call, Endpoint::kCompletion);
}

}  // namespace holdfast::gateway
