#include "engine/records/record_bytes.h"

#include <cstdint>
#include <limits>
#include <utility>

namespace holdfast::engine {
namespace {

constexpr std::uint32_t kVersion = 1;

// Positions that cannot be are refused where the record's tokens are known.
int ToInt(std::uint32_t value) {
  constexpr auto kMost =
      static_cast<std::uint32_t>(std::numeric_limits<int>::max());
  return static_cast<int>(value > kMost ? kMost : value);
}

}  // namespace

void ToProto(const SessionRecord& record, v1::SessionRecord* proto) {
  proto->set_version(kVersion);
  proto->mutable_ids()->Add(record.ids.begin(), record.ids.end());
  proto->set_end_tokens(static_cast<std::uint32_t>(record.end));
  for (const RecordedTurn& turn : record.turns) {
    // They are bytes of ours: FromProto made them.
    (void)proto->add_turns()->ParseFromString(turn.sent);
  }
}

RecordedTurn FromProto(const v1::SentTurn& turn) {
  return {.begin = ToInt(turn.begin_tokens()),
          .end = ToInt(turn.end_tokens()),
          .sent = turn.SerializeAsString()};
}

std::string EncodeRecord(const SessionRecord& record) {
  v1::SessionRecord proto;
  ToProto(record, &proto);
  return proto.SerializeAsString();
}

std::optional<SessionRecord> DecodeRecord(std::string_view bytes) {
  v1::SessionRecord proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      proto.version() != kVersion || proto.ids().empty() ||
      proto.end_tokens() > static_cast<std::uint32_t>(proto.ids_size())) {
    return std::nullopt;
  }
  SessionRecord record;
  for (const std::uint32_t id : proto.ids()) record.ids.push_back(ToInt(id));
  record.end = ToInt(proto.end_tokens());
  int below = 0;
  for (const v1::SentTurn& sent : proto.turns()) {
    RecordedTurn turn = FromProto(sent);
    if (turn.begin < below || turn.end < turn.begin ||
        turn.end > proto.ids_size()) {
      return std::nullopt;
    }
    below = turn.end;
    record.turns.push_back(std::move(turn));
  }
  return record;
}

}  // namespace holdfast::engine
