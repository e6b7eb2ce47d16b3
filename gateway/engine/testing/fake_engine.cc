#include "gateway/engine/testing/fake_engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace holdfast::gateway::testing {
namespace {

constexpr std::chrono::milliseconds kLook{2};
constexpr int kLooks = 5000;
constexpr std::size_t kPartBytes = 1000;  // small: several parts

template <typename Done>
bool LookUntil(Done done) {
  for (int i = 0; i < kLooks; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

void Report(v1::CacheReport* report, std::uint32_t cached,
            std::uint32_t computed) {
  report->set_cache_source(cached > 0 ? "resident" : "none");
  if (cached > 0)
    (*report->mutable_cached_tokens_by_source())["resident"] = cached;
  report->set_resumed_at_tokens(cached);
  report->set_computed_tokens(computed);
  if (cached == 0) report->set_miss_reason("cold");
}

}  // namespace

FakeEngine::FakeEngine(std::string socket, std::string fingerprint)
    : socket_(std::move(socket)) {
  status_.set_state(v1::EngineStatus::SERVING);
  status_.set_model_name("fake");
  status_.set_fingerprint(std::move(fingerprint));
  status_.set_max_context_tokens(4096);
  status_.set_vocab_size(300);
  status_.set_pid(1);
}

FakeEngine::~FakeEngine() { Kill(); }

void FakeEngine::Start() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_,
                           grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr) << socket_;
}

void FakeEngine::Kill() {
  HoldStatus(false);
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeEngine::SetStatus(
    const std::function<void(v1::EngineStatus&)>& change) {
  const std::lock_guard lock(mutex_);
  change(status_);
}

void FakeEngine::SetTokenizer(v1::Tokenizer tokenizer) {
  const std::lock_guard lock(mutex_);
  tokenizer_ = std::move(tokenizer);
}

void FakeEngine::SetGenerator(Generator generator) {
  const std::lock_guard lock(mutex_);
  generator_ = std::move(generator);
}

void FakeEngine::HoldStatus(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_status_ = hold;
}

void FakeEngine::SetRecords(v1::GetRecordsResponse records) {
  const std::lock_guard lock(mutex_);
  records_ = std::move(records);
}

std::vector<v1::RecordTurnRequest> FakeEngine::told() const {
  const std::lock_guard lock(mutex_);
  return told_;
}

std::vector<v1::GetRecordsRequest> FakeEngine::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

int FakeEngine::generate_calls() const {
  const std::lock_guard lock(mutex_);
  return generate_calls_;
}

int FakeEngine::tokenizer_calls() const {
  const std::lock_guard lock(mutex_);
  return tokenizer_calls_;
}

int FakeEngine::clear_calls() const {
  const std::lock_guard lock(mutex_);
  return clear_calls_;
}

int FakeEngine::status_calls() const {
  const std::lock_guard lock(mutex_);
  return status_calls_;
}

v1::GenerateRequest FakeEngine::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_request_;
}

grpc::Status FakeEngine::Generate(grpc::ServerContext* context,
                                  const v1::GenerateRequest* request,
                                  Writer* writer) {
  Generator generator;
  {
    const std::lock_guard lock(mutex_);
    ++generate_calls_;
    last_request_ = *request;
    generator = generator_;
  }
  return generator(*request, *context, *writer);
}

grpc::Status FakeEngine::Status(grpc::ServerContext* context,
                                const v1::EngineStatusRequest*,
                                v1::EngineStatus* response) {
  LookUntil([&] {
    const std::lock_guard lock(mutex_);
    return !hold_status_ || context->IsCancelled();
  });
  const std::lock_guard lock(mutex_);
  ++status_calls_;
  *response = status_;
  return grpc::Status::OK;
}

grpc::Status FakeEngine::GetTokenizer(
    grpc::ServerContext*, const v1::GetTokenizerRequest*,
    grpc::ServerWriter<v1::TokenizerPart>* writer) {
  const std::lock_guard lock(mutex_);
  ++tokenizer_calls_;
  const std::string bytes = tokenizer_.SerializeAsString();
  for (std::size_t at = 0; at < bytes.size(); at += kPartBytes) {
    v1::TokenizerPart part;
    part.set_data(bytes.substr(at, kPartBytes));
    part.set_total_bytes(bytes.size());
    part.set_fingerprint(status_.fingerprint());
    writer->Write(part);
  }
  return grpc::Status::OK;
}

grpc::Status FakeEngine::GetRecords(grpc::ServerContext*,
                                    const v1::GetRecordsRequest* request,
                                    v1::GetRecordsResponse* response) {
  const std::lock_guard lock(mutex_);
  asked_.push_back(*request);
  *response = records_;
  return grpc::Status::OK;
}

grpc::Status FakeEngine::RecordTurn(grpc::ServerContext*,
                                    const v1::RecordTurnRequest* request,
                                    v1::RecordTurnResponse* response) {
  const std::lock_guard lock(mutex_);
  told_.push_back(*request);
  response->set_recorded(true);
  return grpc::Status::OK;
}

grpc::Status FakeEngine::Metrics(grpc::ServerContext*,
                                 const v1::EngineMetricsRequest*,
                                 v1::EngineMetrics* response) {
  response->set_prometheus_text("fake_engine_metric 1\n");
  return grpc::Status::OK;
}

grpc::Status FakeEngine::Stats(grpc::ServerContext*,
                               const v1::EngineStatsRequest*,
                               v1::EngineStats* response) {
  (*response->mutable_prompt_tokens_by_source())["end"] = 2;
  (*response->mutable_prompt_tokens_by_source())["computed"] = 1;
  return grpc::Status::OK;
}

grpc::Status FakeEngine::ClearCache(grpc::ServerContext*,
                                    const v1::ClearCacheRequest* request,
                                    v1::ClearCacheResponse* response) {
  const std::lock_guard lock(mutex_);
  if (request->pool()) {
    ++clear_calls_;
    response->set_blocks(7);
  }
  if (request->responses()) response->set_responses(2);
  return grpc::Status::OK;
}

bool WaitForCancel(grpc::ServerContext& context) {
  return LookUntil([&] { return context.IsCancelled(); });
}

v1::GenerateEvent Progress(std::uint32_t done, std::uint32_t total) {
  v1::GenerateEvent event;
  event.mutable_progress()->set_done_tokens(done);
  event.mutable_progress()->set_total_tokens(total);
  return event;
}

v1::GenerateEvent Started(std::uint32_t cached, std::uint32_t computed) {
  v1::GenerateEvent event;
  Report(event.mutable_started()->mutable_cache(), cached, computed);
  event.mutable_started()->set_prefill_ms(1);
  return event;
}

v1::GenerateEvent Tokens(const std::vector<std::uint32_t>& ids) {
  v1::GenerateEvent event;
  for (const std::uint32_t id : ids)
    event.mutable_tokens()->add_tokens()->set_id(id);
  return event;
}

v1::GenerateEvent Finished(v1::Finished::Reason reason, std::uint32_t cached,
                           std::uint32_t prompt, std::uint32_t output) {
  v1::GenerateEvent event;
  v1::Finished* finished = event.mutable_finished();
  finished->set_reason(reason);
  Report(finished->mutable_cache(), cached, prompt - cached);
  finished->set_prompt_tokens(prompt);
  finished->set_output_tokens(output);
  finished->set_prefill_ms(1);
  finished->set_decode_ms(2);
  return event;
}

v1::GenerateEvent Refused(v1::Refused::Reason reason,
                          const std::string& message,
                          std::uint32_t retry_after_ms) {
  v1::GenerateEvent event;
  event.mutable_refused()->set_reason(reason);
  event.mutable_refused()->set_message(message);
  event.mutable_refused()->set_retry_after_ms(retry_after_ms);
  return event;
}

}  // namespace holdfast::gateway::testing
