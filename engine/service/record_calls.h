// The calls of the gateway about session records.
#ifndef HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_
#define HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_

#include <functional>
#include <memory>

#include "engine/cache/record_source.h"
#include "engine/records/session_records.h"
#include "holdfast/v1/record.pb.h"
#include "shared/sha256.h"

namespace holdfast::engine {

// Branches go out as far as a message holds them, the most recently used
// first. Of a session that the engine knows nothing of, `source` (null: none)
// is asked. `done` is called once, in place or later on another thread;
// `request` and `response` must live until then.
void GetRecords(const std::shared_ptr<SessionRecords>& records,
                RecordSource* source, const Sha256Digest& fingerprint,
                const v1::GetRecordsRequest& request,
                v1::GetRecordsResponse* response, std::function<void()> done);
// What was recorded of a conversation that has ended goes to `source` (null:
// none), too. Does not wait.
void RecordTurn(SessionRecords& records, RecordSource* source,
                const Sha256Digest& fingerprint,
                const v1::RecordTurnRequest& request,
                v1::RecordTurnResponse* response);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_
