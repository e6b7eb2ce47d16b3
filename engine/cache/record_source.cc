#include "engine/cache/record_source.h"

#include <utility>

#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/deadlines.h"

namespace holdfast::engine {

namespace {

// One call: all that must exist until its end is told.
template <typename Request, typename Response>
struct Call {
  Call(std::shared_ptr<const attach::AttachSession> of, const PrefixKey& root,
       const std::string& session_key, std::chrono::milliseconds deadline)
      : session(std::move(of)), stub(v1::Cache::NewStub(session->channel)) {
    request.set_epoch(session->epoch);
    request.set_root(root.data(), root.size());
    request.set_session_key(session_key);
    context.set_deadline(std::chrono::system_clock::now() + deadline);
  }

  const std::shared_ptr<const attach::AttachSession> session;
  const std::unique_ptr<v1::Cache::Stub> stub;
  grpc::ClientContext context;
  Request request;
  Response response;
};

}  // namespace

void RecordSource::Pause::After(grpc::StatusCode code) {
  if (code != grpc::StatusCode::DEADLINE_EXCEEDED) return;
  const std::lock_guard lock(mutex);
  until = Clock::now() + deadlines::kLookupPause;
}

bool RecordSource::Pause::lasts() const {
  const std::lock_guard lock(mutex);
  return Clock::now() < until;
}

void RecordSource::Fetch(const PrefixKey& root, const std::string& session_key,
                         Done done) {
  auto session = client_.session();
  if (session == nullptr || pause_->lasts()) return done({});
  auto call =
      std::make_shared<Call<v1::GetRecordRequest, v1::GetRecordResponse>>(
          std::move(session), root, session_key, lookup_);
  call->stub->async()->GetRecord(
      &call->context, &call->request, &call->response,
      [call, pause = pause_, done = std::move(done)](grpc::Status status) {
        pause->After(status.error_code());
        if (!status.ok()) return done({});
        done(
            {call->response.records().begin(), call->response.records().end()});
      });
}

void RecordSource::Put(const PrefixKey& root, const std::string& session_key,
                       std::span<const std::int32_t> ids, std::string record) {
  auto session = client_.session();
  if (session == nullptr) return;
  if (pause_->lasts()) {
    ++counters_->records_lost;
    return;
  }
  if (++counters_->records_under_way > kMostUnderWay) {
    --counters_->records_under_way;
    ++counters_->records_lost;
    return;
  }
  auto call =
      std::make_shared<Call<v1::PutRecordRequest, v1::PutRecordResponse>>(
          std::move(session), root, session_key, deadlines::kControl);
  call->request.mutable_key_ids()->Add(ids.begin(), ids.end());
  call->request.set_record(std::move(record));
  call->stub->async()->PutRecord(
      &call->context, &call->request, &call->response,
      [call, pause = pause_, counters = counters_](grpc::Status status) {
        pause->After(status.error_code());
        if (!status.ok()) ++counters->records_lost;
        --counters->records_under_way;
      });
}

}  // namespace holdfast::engine
