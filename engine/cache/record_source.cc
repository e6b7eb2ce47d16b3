#include "engine/cache/record_source.h"

#include <utility>

#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/deadlines.h"

namespace holdfast::engine {

void RecordSource::Fetch(const PrefixKey& root, const std::string& session_key,
                         Done done) {
  auto session = client_.session();
  bool quiet = false;
  {
    const std::lock_guard lock(pause_->mutex);
    quiet = Clock::now() < pause_->until;
  }
  if (session == nullptr || quiet) return done({});
  struct Call {
    std::shared_ptr<const attach::AttachSession> session;
    std::unique_ptr<v1::Cache::Stub> stub;
    grpc::ClientContext context;
    v1::GetRecordRequest request;
    v1::GetRecordResponse response;
  };
  auto call = std::make_shared<Call>();
  call->stub = v1::Cache::NewStub(session->channel);
  call->request.set_epoch(session->epoch);
  call->request.set_root(root.data(), root.size());
  call->request.set_session_key(session_key);
  call->session = std::move(session);
  call->context.set_deadline(std::chrono::system_clock::now() +
                             deadlines::kLookup);
  call->stub->async()->GetRecord(
      &call->context, &call->request, &call->response,
      [call, pause = pause_, done = std::move(done)](grpc::Status status) {
        if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
          const std::lock_guard lock(pause->mutex);
          pause->until = Clock::now() + deadlines::kLookupPause;
        }
        if (!status.ok()) return done({});
        done(
            {call->response.records().begin(), call->response.records().end()});
      });
}

void RecordSource::Put(const PrefixKey& root, const std::string& session_key,
                       std::span<const std::int32_t> ids, std::string record) {
  auto session = client_.session();
  if (session == nullptr) return;
  struct Call {
    std::shared_ptr<const attach::AttachSession> session;
    std::unique_ptr<v1::Cache::Stub> stub;
    grpc::ClientContext context;
    v1::PutRecordRequest request;
    v1::PutRecordResponse response;
  };
  auto call = std::make_shared<Call>();
  call->stub = v1::Cache::NewStub(session->channel);
  call->request.set_epoch(session->epoch);
  call->request.set_root(root.data(), root.size());
  call->request.set_session_key(session_key);
  call->request.mutable_key_ids()->Add(ids.begin(), ids.end());
  call->request.set_record(std::move(record));
  call->session = std::move(session);
  call->context.set_deadline(std::chrono::system_clock::now() +
                             deadlines::kControl);
  call->stub->async()->PutRecord(&call->context, &call->request,
                                 &call->response, [call](grpc::Status) {});
}

}  // namespace holdfast::engine
