#include "cachesvc/service/tier_calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// What one call may make us keep.
constexpr std::size_t kMostSessionKeyBytes = 4096;
constexpr std::size_t kMostRecordBytes = std::size_t{16} << 20;

std::optional<StateKind> FromProto(v1::StateImage::Kind kind) {
  switch (kind) {
    case v1::StateImage::LINE:
      return StateKind::kLine;
    case v1::StateImage::END:
      return StateKind::kEnd;
    case v1::StateImage::MESSAGE:
      return StateKind::kMessage;
    case v1::StateImage::TURN:
      return StateKind::kTurn;
    default:
      return std::nullopt;
  }
}

v1::StateImage::Kind ToProto(StateKind kind) {
  switch (kind) {
    case StateKind::kLine:
      return v1::StateImage::LINE;
    case StateKind::kEnd:
      return v1::StateImage::END;
    case StateKind::kTurn:
      return v1::StateImage::TURN;
    case StateKind::kMessage:
      break;
  }
  return v1::StateImage::MESSAGE;
}

absl::Status Bad(std::string what) {
  return absl::InvalidArgumentError(std::move(what));
}

}  // namespace

std::optional<Sha256Digest> DigestOf(const std::string& bytes) {
  Sha256Digest digest;
  if (bytes.size() != digest.size()) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

std::string BytesOf(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

v1::Tier TierOf(FileKind kind) {
  return kind == FileKind::kSession ? v1::TIER_SPILL : v1::TIER_DISK;
}

std::optional<FileKind> KindOf(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_DISK:
      return FileKind::kAnchor;
    case v1::TIER_SPILL:
      return FileKind::kSession;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<NamedPrompt> FromProto(const v1::PromptKeys& proto) {
  const auto root = DigestOf(proto.root());
  if (!root || proto.block_keys().size() % sizeof(PrefixKey) != 0) {
    return Bad(fmt::format("prompt: a root of {} bytes, keys of {}",
                           proto.root().size(), proto.block_keys().size()));
  }
  NamedPrompt prompt{.root = *root, .block_keys = {}};
  prompt.block_keys.resize(proto.block_keys().size() / sizeof(PrefixKey));
  if (!prompt.block_keys.empty()) {
    std::memcpy(prompt.block_keys.data(), proto.block_keys().data(),
                proto.block_keys().size());
  }
  return prompt;
}

namespace {

void SetTaint(std::uint64_t taint, v1::TierCandidate* proto) {
  if (taint == kNoTaint) return;
  proto->set_taint_tokens(static_cast<std::uint32_t>(taint));
}

}  // namespace

void ToProto(const Candidate& candidate, v1::TierCandidate* proto) {
  SetTaint(candidate.taint, proto);
  proto->set_tier(TierOf(candidate.kind));
  proto->set_key(BytesOf(candidate.file_key));
  proto->set_position_tokens(static_cast<std::uint32_t>(candidate.position));
  proto->set_bytes(candidate.bytes);
  proto->mutable_tail_ids()->Add(candidate.tail.begin(), candidate.tail.end());
  proto->set_state(ToProto(candidate.state));
}

void ToProto(const StoreCandidate& candidate, v1::TierCandidate* proto) {
  SetTaint(candidate.taint, proto);
  proto->set_tier(v1::TIER_STORE);
  proto->set_key(BytesOf(KeyOfEntry(candidate.entry)));
  proto->set_position_tokens(static_cast<std::uint32_t>(candidate.position));
  proto->set_bytes(candidate.bytes);
  proto->mutable_tail_ids()->Add(candidate.tail.begin(), candidate.tail.end());
  proto->set_state(ToProto(candidate.state));
}

Sha256Digest KeyOfEntry(std::uint64_t entry) {
  Sha256Digest key{};
  std::memcpy(key.data(), &entry, sizeof(entry));
  return key;
}

std::uint64_t EntryOfKey(const Sha256Digest& key) {
  std::uint64_t entry;
  std::memcpy(&entry, key.data(), sizeof(entry));
  return entry;
}

void ToProto(const HandedPieces& handed, v1::RestoreNextResponse* proto) {
  for (const HandedPiece& piece : handed.pieces) {
    v1::RestorePiece* out = proto->add_pieces();
    out->mutable_slot()->set_slot(piece.slot);
    out->mutable_slot()->set_generation(piece.generation);
    out->set_what(piece.what == SourcePiece::What::kState
                      ? v1::RestorePiece::STATE
                      : v1::RestorePiece::ROWS);
    out->set_slot_offset_bytes(piece.slot_offset);
    out->set_target_offset_bytes(piece.target_offset);
    out->set_bytes(piece.bytes);
  }
  proto->set_last(handed.last);
}

void ToProto(const StoreAnswer& answer, v1::StoreResponse* proto) {
  switch (answer.outcome) {
    case StoreAnswer::Outcome::kStored:
      proto->set_outcome(v1::StoreResponse::STORED);
      break;
    case StoreAnswer::Outcome::kWasThere:
      proto->set_outcome(v1::StoreResponse::WAS_THERE);
      break;
    case StoreAnswer::Outcome::kRefused:
      proto->set_outcome(v1::StoreResponse::REFUSED);
      break;
  }
  proto->set_reason(answer.reason);
  proto->set_detail(answer.detail);
  proto->set_bytes_written(answer.bytes_written);
  proto->set_end_tokens(static_cast<std::uint32_t>(answer.end_position));
  if (answer.file_key) proto->set_key(BytesOf(*answer.file_key));
}

void ToProto(const StoredResident& resident, v1::Resident* proto) {
  const FileMeta& meta = resident.meta;
  v1::TierCandidate* candidate = proto->mutable_candidate();
  candidate->set_tier(TierOf(meta.kind));
  candidate->set_key(BytesOf(meta.file_key));
  candidate->set_position_tokens(static_cast<std::uint32_t>(meta.end_position));
  candidate->set_bytes(resident.bytes);
  SetTaint(meta.taint, candidate);
  candidate->set_own_session(true);
  proto->set_root(BytesOf(meta.parent_key));
  proto->mutable_key_ids()->Add(meta.key_ids.begin(), meta.key_ids.end());
  proto->set_session_key(meta.session_key);
  proto->set_record(meta.record);
  for (const StateMeta& state : meta.states) {
    const auto position = static_cast<std::uint32_t>(state.position);
    if (state.kind == StateKind::kLine) {
      proto->add_line_positions_tokens(position);
    } else if (state.kind == StateKind::kMessage ||
               state.kind == StateKind::kTurn) {
      proto->add_message_positions_tokens(position);
    }
    if (state.kind == StateKind::kTurn) {
      proto->set_turn_position_tokens(position);
    }
  }
}

absl::StatusOr<LeasedStore> FromProto(const v1::StoreRequest& proto) {
  auto kind = KindOf(proto.tier());
  if (proto.tier() == v1::TIER_STORE && proto.states_size() > 0) {
    // A prefix has one state, at its line; a conversation's last is its end.
    const auto last = proto.states(proto.states_size() - 1).kind();
    kind =
        last == v1::StateImage::LINE ? FileKind::kAnchor : FileKind::kSession;
  }
  const auto root = DigestOf(proto.root());
  if (!kind || !root || proto.session_key().size() > kMostSessionKeyBytes ||
      proto.record().size() > kMostRecordBytes) {
    return Bad(fmt::format(
        "store: tier {}, a root of {} bytes, a session key of {}, a record of "
        "{}",
        static_cast<int>(proto.tier()), proto.root().size(),
        proto.session_key().size(), proto.record().size()));
  }
  LeasedStore store;
  store.kind = *kind;
  store.root = *root;
  store.key_ids.assign(proto.key_ids().begin(), proto.key_ids().end());
  store.blocks.assign(proto.blocks().begin(), proto.blocks().end());
  for (const v1::StateImage& image : proto.states()) {
    const auto state = FromProto(image.kind());
    if (!state) return Bad("store: a state of no kind");
    store.states.push_back({image.position_tokens(),
                            *state,
                            {image.blocks().begin(), image.blocks().end()}});
  }
  store.lease_slot = proto.lease().slot();
  store.lease_generation = proto.lease().generation();
  store.session_key = proto.session_key();
  store.record = proto.record();
  if (proto.has_taint_tokens()) store.taint = proto.taint_tokens();
  store.resident = proto.resident();
  store.pinned = proto.pinned();
  store.deadline = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(proto.deadline_ms());
  return store;
}

absl::StatusOr<EndRecord> FromProto(const v1::PutRecordRequest& proto) {
  const auto root = DigestOf(proto.root());
  if (!root || proto.session_key().size() > kMostSessionKeyBytes ||
      proto.record().size() > kMostRecordBytes) {
    return Bad(fmt::format(
        "put record: a root of {} bytes, a session key of {}, a record of {}",
        proto.root().size(), proto.session_key().size(),
        proto.record().size()));
  }
  return EndRecord{.session_id = SessionId(*root, proto.session_key()),
                   .key_ids = {proto.key_ids().begin(), proto.key_ids().end()},
                   .record = proto.record()};
}

MeasuredRates FromProto(const v1::MeasuredCosts& proto) {
  return {proto.prefill_tokens_per_s(),
          {proto.store_read_bytes_per_s(), proto.disk_read_bytes_per_s(),
           proto.spill_read_bytes_per_s()}};
}

void ToProto(const MeasuredRates& rates, v1::MeasuredCosts* proto) {
  proto->set_prefill_tokens_per_s(rates.prefill_tokens_per_s);
  proto->set_store_read_bytes_per_s(rates.read_bytes_per_s[0]);
  proto->set_disk_read_bytes_per_s(rates.read_bytes_per_s[1]);
  proto->set_spill_read_bytes_per_s(rates.read_bytes_per_s[2]);
}

}  // namespace holdfast::cachesvc
