// The calls of the gateway about session records.
#ifndef HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_
#define HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_

#include "engine/records/session_records.h"
#include "holdfast/v1/record.pb.h"
#include "shared/sha256.h"

namespace holdfast::engine {

// Branches go out as far as a message holds them, the most recently used
// first. Neither waits.
void GetRecords(SessionRecords& records, const Sha256Digest& fingerprint,
                const v1::GetRecordsRequest& request,
                v1::GetRecordsResponse* response);
void RecordTurn(SessionRecords& records, const Sha256Digest& fingerprint,
                const v1::RecordTurnRequest& request,
                v1::RecordTurnResponse* response);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVICE_RECORD_CALLS_H_
