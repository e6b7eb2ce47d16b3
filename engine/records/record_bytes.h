// Session records on the wire and in files (record.proto).
#ifndef HOLDFAST_ENGINE_RECORDS_RECORD_BYTES_H_
#define HOLDFAST_ENGINE_RECORDS_RECORD_BYTES_H_

#include <optional>
#include <string>
#include <string_view>

#include "engine/records/session_records.h"
#include "holdfast/v1/record.pb.h"

namespace holdfast::engine {

void ToProto(const SessionRecord& record, v1::SessionRecord* proto);
RecordedTurn FromProto(const v1::SentTurn& turn);

// What the cache service keeps with a conversation.
std::string EncodeRecord(const SessionRecord& record);
// Nothing for what is no record, one of another version, or one whose positions
// cannot be. Branch and revision are not in it.
std::optional<SessionRecord> DecodeRecord(std::string_view bytes);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RECORDS_RECORD_BYTES_H_
