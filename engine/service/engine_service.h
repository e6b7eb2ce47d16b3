// The gRPC service of the engine.
#ifndef HOLDFAST_ENGINE_SERVICE_ENGINE_SERVICE_H_
#define HOLDFAST_ENGINE_SERVICE_ENGINE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "engine/cache/record_source.h"
#include "engine/response/response_cache.h"
#include "engine/scheduler/scheduler.h"
#include "engine/service/generate_stream.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::engine {

// Answers from the start of the process: Status says LOADING and every other
// call UNAVAILABLE until Serve(). No call waits in a gRPC thread.
class EngineService final : public v1::Engine::CallbackService {
 public:
  struct Serving {
    Scheduler* scheduler = nullptr;  // outlives the server
    // The fields that do not change.
    v1::EngineStatus status;
    TokenizerSpec tokenizer;
    // How the engine stands with the cache service; must not wait.
    std::function<v1::CacheServiceLink()> cache_link;
    ResponseCache* responses = nullptr;  // null: off; outlives the server
    RecordSource* records = nullptr;     // null: no cache service; outlives it
  };

  // `loading` is what Status answers until Serve().
  explicit EngineService(const v1::EngineStatus& loading);
  // Once.
  void Serve(Serving serving);

  GenerateReactor* Generate(grpc::CallbackServerContext* context,
                            const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const v1::EngineStatusRequest* request,
                                   v1::EngineStatus* response) override;
  grpc::ServerWriteReactor<v1::TokenizerPart>* GetTokenizer(
      grpc::CallbackServerContext* context,
      const v1::GetTokenizerRequest* request) override;
  grpc::ServerUnaryReactor* Metrics(grpc::CallbackServerContext* context,
                                    const v1::EngineMetricsRequest* request,
                                    v1::EngineMetrics* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const v1::EngineStatsRequest* request,
                                  v1::EngineStats* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* SaveSession(
      grpc::CallbackServerContext* context,
      const v1::SaveSessionRequest* request,
      v1::SaveSessionResponse* response) override;
  grpc::ServerUnaryReactor* ClearCache(
      grpc::CallbackServerContext* context,
      const v1::ClearCacheRequest* request,
      v1::ClearCacheResponse* response) override;
  grpc::ServerUnaryReactor* GetRecords(
      grpc::CallbackServerContext* context,
      const v1::GetRecordsRequest* request,
      v1::GetRecordsResponse* response) override;
  grpc::ServerUnaryReactor* RecordTurn(
      grpc::CallbackServerContext* context,
      const v1::RecordTurnRequest* request,
      v1::RecordTurnResponse* response) override;

 private:
  struct Served {
    Serving serving;
    std::string tokenizer_bytes;  // serialized
    Sha256Digest fingerprint{};
  };

  const v1::EngineStatus loading_;
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  std::unique_ptr<const Served> owned_;
  std::atomic<const Served*> served_{nullptr};
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVICE_ENGINE_SERVICE_H_
