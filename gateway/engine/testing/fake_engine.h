// An Engine service in this process, on a socket file, that does what a test
// tells it. Thread-safe.
#ifndef HOLDFAST_GATEWAY_ENGINE_TESTING_FAKE_ENGINE_H_
#define HOLDFAST_GATEWAY_ENGINE_TESTING_FAKE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "holdfast/v1/tokenizer.pb.h"

namespace holdfast::gateway::testing {

class FakeEngine final : private v1::Engine::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateEvent>;
  // Runs on a thread of the call; what it returns ends the call.
  using Generator = std::function<grpc::Status(const v1::GenerateRequest&,
                                               grpc::ServerContext&, Writer&)>;

  // Serves a model of `fingerprint` at `socket` once started.
  FakeEngine(std::string socket, std::string fingerprint);
  ~FakeEngine() override;

  void Start();
  // Cuts every call and closes the socket.
  void Kill();

  void SetStatus(const std::function<void(v1::EngineStatus&)>& change);
  void SetTokenizer(v1::Tokenizer tokenizer);
  void SetGenerator(Generator generator);
  // What GetRecords answers.
  void SetRecords(v1::GetRecordsResponse records);
  // What was told, in order.
  std::vector<v1::RecordTurnRequest> told() const;
  std::vector<v1::GetRecordsRequest> asked() const;
  // Status is answered only after this was called with false again.
  void HoldStatus(bool hold);

  int generate_calls() const;
  int tokenizer_calls() const;
  int status_calls() const;
  int clear_calls() const;  // of the pool
  v1::GenerateRequest last_request() const;

 private:
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        Writer* writer) override;
  grpc::Status Status(grpc::ServerContext* context,
                      const v1::EngineStatusRequest* request,
                      v1::EngineStatus* response) override;
  grpc::Status GetTokenizer(
      grpc::ServerContext* context, const v1::GetTokenizerRequest* request,
      grpc::ServerWriter<v1::TokenizerPart>* writer) override;
  grpc::Status GetRecords(grpc::ServerContext* context,
                          const v1::GetRecordsRequest* request,
                          v1::GetRecordsResponse* response) override;
  grpc::Status RecordTurn(grpc::ServerContext* context,
                          const v1::RecordTurnRequest* request,
                          v1::RecordTurnResponse* response) override;
  grpc::Status Metrics(grpc::ServerContext* context,
                       const v1::EngineMetricsRequest* request,
                       v1::EngineMetrics* response) override;
  // Two prompt tokens from the end, one computed.
  grpc::Status Stats(grpc::ServerContext* context,
                     const v1::EngineStatsRequest* request,
                     v1::EngineStats* response) override;
  // Of the pool seven blocks, of responses two.
  grpc::Status ClearCache(grpc::ServerContext* context,
                          const v1::ClearCacheRequest* request,
                          v1::ClearCacheResponse* response) override;

  const std::string socket_;
  mutable std::mutex mutex_;
  v1::EngineStatus status_;
  v1::Tokenizer tokenizer_;
  Generator generator_;
  bool hold_status_ = false;
  int generate_calls_ = 0;
  int tokenizer_calls_ = 0;
  int status_calls_ = 0;
  int clear_calls_ = 0;
  v1::GenerateRequest last_request_;
  v1::GetRecordsResponse records_;
  std::vector<v1::GetRecordsRequest> asked_;
  std::vector<v1::RecordTurnRequest> told_;
  std::unique_ptr<grpc::Server> server_;
};

// Blocks until the client of the call has gone; false after 10 s.
bool WaitForCancel(grpc::ServerContext& context);

// Events, for short scripts.
v1::GenerateEvent Progress(std::uint32_t done, std::uint32_t total);
v1::GenerateEvent Started(std::uint32_t cached, std::uint32_t computed);
v1::GenerateEvent Tokens(const std::vector<std::uint32_t>& ids);
v1::GenerateEvent Finished(v1::Finished::Reason reason, std::uint32_t cached,
                           std::uint32_t prompt, std::uint32_t output);
v1::GenerateEvent Refused(v1::Refused::Reason reason,
                          const std::string& message,
                          std::uint32_t retry_after_ms);

}  // namespace holdfast::gateway::testing

#endif  // HOLDFAST_GATEWAY_ENGINE_TESTING_FAKE_ENGINE_H_
