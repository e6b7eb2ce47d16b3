#include "engine/cache/tier_protos.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace holdfast::engine {
namespace {

v1::Tier ToProto(Tier tier) {
  switch (tier) {
    case Tier::kStore:
      return v1::TIER_STORE;
    case Tier::kDisk:
      return v1::TIER_DISK;
    case Tier::kSpill:
      break;
  }
  return v1::TIER_SPILL;
}

std::optional<Tier> FromProto(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_STORE:
      return Tier::kStore;
    case v1::TIER_DISK:
      return Tier::kDisk;
    case v1::TIER_SPILL:
      return Tier::kSpill;
    default:
      return std::nullopt;
  }
}

v1::StateImage::Kind ToProto(StoredState kind) {
  switch (kind) {
    case StoredState::kLine:
      return v1::StateImage::LINE;
    case StoredState::kEnd:
      return v1::StateImage::END;
    case StoredState::kTurn:
      return v1::StateImage::TURN;
    case StoredState::kMessage:
      break;
  }
  return v1::StateImage::MESSAGE;
}

// What an older service does not say matters for log lines alone.
StoredState FromProto(v1::StateImage::Kind kind) {
  switch (kind) {
    case v1::StateImage::END:
      return StoredState::kEnd;
    case v1::StateImage::MESSAGE:
      return StoredState::kMessage;
    case v1::StateImage::TURN:
      return StoredState::kTurn;
    default:
      return StoredState::kLine;
  }
}

// Ascending positions below `end`.
std::vector<int> Positions(
    const google::protobuf::RepeatedField<std::uint32_t>& proto, int end) {
  std::vector<int> positions;
  for (const std::uint32_t position : proto) {
    if (position > 0 && position < static_cast<std::uint32_t>(end)) {
      positions.push_back(static_cast<int>(position));
    }
  }
  return positions;
}

}  // namespace

void ToProto(const PromptView& prompt, v1::PromptKeys* proto) {
  proto->set_root(prompt.root.data(), prompt.root.size());
  std::string& keys = *proto->mutable_block_keys();
  keys.reserve(prompt.block_keys.size() * sizeof(PrefixKey));
  for (const PrefixKey& key : prompt.block_keys) {
    keys.append(reinterpret_cast<const char*>(key.data()), key.size());
  }
}

void ToProto(const TierCandidate& candidate, v1::TierCandidate* proto) {
  proto->set_tier(ToProto(candidate.tier));
  proto->set_key(candidate.key.data(), candidate.key.size());
  proto->set_position_tokens(static_cast<std::uint32_t>(candidate.position));
  proto->set_bytes(candidate.bytes);
}

v1::StoreRequest ToProto(const StoreJob& job, std::uint64_t epoch) {
  v1::StoreRequest request;
  request.set_epoch(epoch);
  request.set_tier(ToProto(job.tier));
  request.set_root(job.root.data(), job.root.size());
  request.mutable_key_ids()->Add(job.ids.begin(), job.ids.end());
  request.mutable_blocks()->Add(job.blocks.begin(), job.blocks.end());
  for (const StoreJob::State& state : job.states) {
    v1::StateImage* image = request.add_states();
    image->set_position_tokens(static_cast<std::uint32_t>(state.position));
    image->set_kind(ToProto(state.kind));
    image->mutable_blocks()->Add(state.blocks.begin(), state.blocks.end());
  }
  request.mutable_lease()->set_slot(job.lease.slot);
  request.mutable_lease()->set_generation(job.lease.generation);
  request.set_session_key(job.session_key);
  request.set_record(job.record);
  request.set_deadline_ms(static_cast<std::uint32_t>(job.deadline.count()));
  if (job.taint != kUntainted) {
    request.set_taint_tokens(static_cast<std::uint32_t>(job.taint));
  }
  request.set_resident(job.resident);
  request.set_pinned(job.pinned);
  return request;
}

std::optional<TierCandidate> FromProto(const v1::TierCandidate& proto) {
  const auto tier = FromProto(proto.tier());
  TierCandidate candidate;
  if (!tier || proto.key().size() != candidate.key.size() ||
      proto.position_tokens() == 0 ||
      proto.position_tokens() >
          static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
    return std::nullopt;
  }
  candidate.tier = *tier;
  std::ranges::copy(proto.key(), candidate.key.begin());
  candidate.position = static_cast<int>(proto.position_tokens());
  candidate.bytes = proto.bytes();
  if (proto.has_taint_tokens()) {
    // Above everything that an int can say is above every position.
    candidate.taint = static_cast<int>(std::min<std::uint32_t>(
        proto.taint_tokens(), static_cast<std::uint32_t>(kUntainted)));
  }
  candidate.own_session = proto.own_session();
  candidate.state = FromProto(proto.state());
  return candidate;
}

std::optional<KeptResident> FromProto(const v1::Resident& proto) {
  auto candidate = FromProto(proto.candidate());
  KeptResident kept;
  if (!candidate || proto.root().size() != kept.root.size() ||
      candidate->position != proto.key_ids_size()) {
    return std::nullopt;
  }
  kept.candidate = *candidate;
  std::ranges::copy(proto.root(), kept.root.begin());
  kept.ids.assign(proto.key_ids().begin(), proto.key_ids().end());
  kept.session_key = proto.session_key();
  const int end = kept.candidate.position;
  kept.lines = Positions(proto.line_positions_tokens(), end);
  kept.messages = Positions(proto.message_positions_tokens(), end);
  kept.turn = static_cast<int>(
      std::min<std::uint32_t>(proto.turn_position_tokens(), end));
  return kept;
}

void ToProto(const PlannerRates& rates, v1::MeasuredCosts* proto) {
  const auto read = [&](Tier tier) {
    return rates.read_bytes[static_cast<std::size_t>(tier)];
  };
  proto->set_prefill_tokens_per_s(rates.prefill_tokens);
  proto->set_store_read_bytes_per_s(read(Tier::kStore));
  proto->set_disk_read_bytes_per_s(read(Tier::kDisk));
  proto->set_spill_read_bytes_per_s(read(Tier::kSpill));
}

PlannerRates FromProto(const v1::MeasuredCosts& proto) {
  const auto rate = [](double value) {
    return std::isfinite(value) && value > 0 ? value : 0;
  };
  return {.prefill_tokens = rate(proto.prefill_tokens_per_s()),
          .read_bytes = {rate(proto.store_read_bytes_per_s()),
                         rate(proto.disk_read_bytes_per_s()),
                         rate(proto.spill_read_bytes_per_s())}};
}

StoreOutcome FromProto(v1::StoreResponse::Outcome outcome) {
  switch (outcome) {
    case v1::StoreResponse::STORED:
      return StoreOutcome::kStored;
    case v1::StoreResponse::WAS_THERE:
      return StoreOutcome::kWasThere;
    case v1::StoreResponse::REFUSED:
      return StoreOutcome::kRefused;
    default:
      return StoreOutcome::kFailed;
  }
}

}  // namespace holdfast::engine
