#include "engine/service/engine_service.h"

#include <algorithm>
#include <utility>

#include "engine/response/response_metrics.h"
#include "engine/response/response_recorder.h"
#include "engine/service/convert.h"
#include "engine/service/record_calls.h"
#include "shared/check.h"
#include "shared/grpc_status.h"
#include "shared/tokenizer_proto.h"

namespace holdfast::engine {
namespace {

constexpr std::size_t kPartBytes = 1 << 20;

grpc::Status Loading() {
  return {grpc::StatusCode::UNAVAILABLE, "the engine is loading its model"};
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// A stream that only fails.
template <typename Message>
class FailedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit FailedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

// Writes the serialized tokenizer piece by piece. `bytes` outlives the server.
class TokenizerStream final
    : public grpc::ServerWriteReactor<v1::TokenizerPart> {
 public:
  TokenizerStream(const std::string& bytes, const std::string& fingerprint)
      : bytes_(bytes) {
    part_.set_total_bytes(bytes.size());
    part_.set_fingerprint(fingerprint);
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) return Next();
    Finish({grpc::StatusCode::CANCELLED, "the client has gone"});
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (sent_ == bytes_.size()) return Finish(grpc::Status::OK);
    const std::size_t size = std::min(kPartBytes, bytes_.size() - sent_);
    part_.set_data(bytes_.substr(sent_, size));
    sent_ += size;
    StartWrite(&part_);
  }

  const std::string& bytes_;
  std::size_t sent_ = 0;
  v1::TokenizerPart part_;
};

// Answers when the engine has done it, from its thread.
class LateReactor final : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

EngineService::EngineService(const v1::EngineStatus& loading)
    : loading_(loading) {}

void EngineService::Serve(Serving serving) {
  HF_CHECK(owned_ == nullptr);
  auto served = std::make_unique<Served>();
  served->tokenizer_bytes = ToProto(serving.tokenizer).SerializeAsString();
  serving.tokenizer = {};
  const std::string& fingerprint = serving.status.fingerprint();
  HF_CHECK(fingerprint.size() == served->fingerprint.size());
  std::ranges::copy(fingerprint, served->fingerprint.begin());
  served->serving = std::move(serving);
  owned_ = std::move(served);
  served_ = owned_.get();
}

GenerateReactor* EngineService::Generate(grpc::CallbackServerContext*,
                                         const v1::GenerateRequest* proto) {
  const Served* served = served_;
  if (served == nullptr) {
    return new FailedStream<v1::GenerateEvent>(Loading());
  }
  Scheduler* const scheduler = served->serving.scheduler;
  auto stream = std::make_shared<GenerateStream>();
  auto request = FromProto(*proto);
  if (!request.ok()) {
    GenerateReactor* reactor = GenerateStream::Open([] {}, stream);
    stream->OnRefused({.reason = Refusal::Reason::kInvalid,
                       .message = std::string(request.status().message())});
    return reactor;
  }
  ResponseCache* const responses = served->serving.responses;
  const auto key =
      responses != nullptr ? responses->KeyOf(*request) : std::nullopt;
  std::shared_ptr<EventSink> sink = stream;
  if (key) {
    if (const auto response = responses->Find(*key)) {
      const Job job(*std::move(request), stream);
      GenerateReactor* reactor = GenerateStream::Open([] {}, stream);
      scheduler->Replay(job, *response);
      return reactor;
    }
    sink = std::make_shared<ResponseRecorder>(stream, responses, *key);
  }
  auto job = std::make_shared<Job>(*std::move(request), std::move(sink));
  GenerateReactor* reactor = GenerateStream::Open(
      [scheduler, job] { scheduler->Cancel(job); }, stream);
  scheduler->Submit(std::move(job));
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::Status(
    grpc::CallbackServerContext* context, const v1::EngineStatusRequest*,
    v1::EngineStatus* response) {
  const Served* served = served_;
  if (served == nullptr) {
    *response = loading_;
    response->set_state(v1::EngineStatus::LOADING);
  } else {
    const Scheduler& scheduler = *served->serving.scheduler;
    const EngineGauges gauges = scheduler.gauges();
    *response = served->serving.status;
    response->set_state(scheduler.draining() ? v1::EngineStatus::DRAINING
                                             : v1::EngineStatus::SERVING);
    response->set_running_requests(gauges.running);
    response->set_waiting_requests(gauges.waiting);
    response->set_pool_free_blocks(gauges.free_blocks);
    response->set_pool_cached_blocks(gauges.cached_blocks);
    response->set_anchors(gauges.anchors);
    response->set_preemptions_total(gauges.preemptions);
    response->set_pool_evictions_total(gauges.evictions);
    *response->mutable_cache_service() = served->serving.cache_link();
  }
  response->set_uptime_s(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
          .count());
  return Answer(context, grpc::Status::OK);
}

grpc::ServerWriteReactor<v1::TokenizerPart>* EngineService::GetTokenizer(
    grpc::CallbackServerContext*, const v1::GetTokenizerRequest*) {
  const Served* served = served_;
  if (served == nullptr) return new FailedStream<v1::TokenizerPart>(Loading());
  return new TokenizerStream(served->tokenizer_bytes,
                             served->serving.status.fingerprint());
}

grpc::ServerUnaryReactor* EngineService::Metrics(
    grpc::CallbackServerContext* context, const v1::EngineMetricsRequest*,
    v1::EngineMetrics* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  std::string text = served->serving.scheduler->MetricsText();
  if (served->serving.responses != nullptr)
    text += ResponseMetricsText(served->serving.responses->stats());
  response->set_prometheus_text(std::move(text));
  return Answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* EngineService::Stats(
    grpc::CallbackServerContext* context, const v1::EngineStatsRequest*,
    v1::EngineStats* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  const Scheduler& scheduler = *served->serving.scheduler;
  ToProto(scheduler.totals(), response);
  ToProto(scheduler.gauges(), response);
  if (served->serving.responses != nullptr)
    ToProto(served->serving.responses->stats(), response);
  return Answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* EngineService::Drain(
    grpc::CallbackServerContext* context, const v1::DrainRequest* request,
    v1::DrainResponse* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  auto* reactor = new LateReactor;
  served->serving.scheduler->Drain(
      std::chrono::milliseconds(request->deadline_ms()),
      SpillTime(served->serving.status.pool_bytes()),
      [reactor, response](Scheduler::DrainResult result) {
        response->set_finished_requests(result.finished);
        response->set_cancelled_requests(result.cancelled);
        reactor->Finish(grpc::Status::OK);
      });
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::ClearCache(
    grpc::CallbackServerContext* context, const v1::ClearCacheRequest* request,
    v1::ClearCacheResponse* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  const bool all = !request->pool() && !request->responses();
  ResponseCache* const responses = served->serving.responses;
  if (responses != nullptr && (all || request->responses()))
    response->set_responses(responses->Clear());
  if (!all && !request->pool()) return Answer(context, grpc::Status::OK);
  auto* reactor = new LateReactor;
  served->serving.scheduler->ClearCache([reactor, response](int blocks) {
    response->set_blocks(static_cast<std::uint64_t>(blocks));
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::SaveSession(
    grpc::CallbackServerContext* context, const v1::SaveSessionRequest* request,
    v1::SaveSessionResponse* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  auto* reactor = new LateReactor;
  served->serving.scheduler->SaveSession(
      request->session_key(), [reactor, response](const SavedSession& saved) {
        response->set_session_key(saved.session_key);
        response->set_rows_tokens(static_cast<std::uint32_t>(saved.rows));
        reactor->Finish(ToGrpcStatus(saved.status));
      });
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::GetRecords(
    grpc::CallbackServerContext* context, const v1::GetRecordsRequest* request,
    v1::GetRecordsResponse* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  auto* reactor = new LateReactor;
  engine::GetRecords(served->serving.scheduler->records(),
                     served->serving.records, served->fingerprint, *request,
                     response,
                     [reactor] { reactor->Finish(grpc::Status::OK); });
  return reactor;
}

grpc::ServerUnaryReactor* EngineService::RecordTurn(
    grpc::CallbackServerContext* context, const v1::RecordTurnRequest* request,
    v1::RecordTurnResponse* response) {
  const Served* served = served_;
  if (served == nullptr) return Answer(context, Loading());
  engine::RecordTurn(*served->serving.scheduler->records(),
                     served->serving.records, served->fingerprint, *request,
                     response);
  return Answer(context, grpc::Status::OK);
}

}  // namespace holdfast::engine
