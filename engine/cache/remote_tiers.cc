#include "engine/cache/remote_tiers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/cache/tier_protos.h"
#include "engine/model_status.h"
#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::ceil;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostUnheard = 64;

// gRPC's deadlines are of the system clock; what is left is what counts.
void SetDeadline(grpc::ClientContext& context, steady_clock::time_point until) {
  const auto left = ceil<milliseconds>(until - steady_clock::now());
  context.set_deadline(std::chrono::system_clock::now() +
                       std::max(left, milliseconds(0)));
}

// Whether the prompt goes on as the candidate does behind the last whole block.
bool HasTail(const PromptView& prompt, const TierCandidate& candidate,
             const v1::TierCandidate& proto) {
  const auto position = static_cast<std::size_t>(candidate.position);
  const std::size_t rest = position % kBlockTokens;
  if (position > prompt.ids.size() ||
      static_cast<std::size_t>(proto.tail_ids_size()) != rest) {
    return false;
  }
  return std::equal(proto.tail_ids().begin(), proto.tail_ids().end(),
                    prompt.ids.begin() + (position - rest));
}

// Of the concatenated blocks: the rows that are there already.
std::uint64_t HaveBytes(const RestoreTarget& target) {
  return static_cast<std::uint64_t>(target.have_tokens) / kBlockTokens *
         target.block_bytes;
}

// Copies [begin, begin + bytes) of the concatenated blocks; returns how many
// bytes were missing there.
absl::StatusOr<std::uint64_t> ScatterRows(const RestoreTarget& target,
                                          std::uint64_t begin,
                                          std::span<const std::byte> from) {
  const std::uint64_t have = HaveBytes(target);
  std::uint64_t written = 0;
  while (!from.empty()) {
    const std::uint64_t block = begin / target.block_bytes;
    const std::uint64_t at = begin % target.block_bytes;
    const std::size_t bytes = static_cast<std::size_t>(
        std::min<std::uint64_t>(from.size(), target.block_bytes - at));
    if (begin >= have) {
      std::byte* const to = target.blocks[block] + at;
      if (target.backend == nullptr) {
        std::memcpy(to, from.data(), bytes);
      } else if (const auto status =
                     target.backend->Write(from.data(), bytes, to);
                 !status.ok()) {
        return ToAbslStatus(status);
      }
      written += bytes;
    }
    from = from.subspan(bytes);
    begin += bytes;
  }
  return written;
}

}  // namespace

RemoteTiers::RemoteTiers(const attach::AttachClient& client)
    : client_(client), stores_(client) {}

const attach::AttachSession* RemoteTiers::Session() {
  auto now = client_.session();
  if (now != session_) {
    // Slots and restores end with an attach.
    unheard_.clear();
    quiet_until_ = {};
    stub_ = now == nullptr ? nullptr : v1::Cache::NewStub(now->channel);
    session_ = std::move(now);
  }
  return session_.get();
}

TierLookup RemoteTiers::Lookup(const PromptView& prompt) {
  const attach::AttachSession* session = Session();
  if (session == nullptr) return {};
  const auto now = steady_clock::now();
  if (now < quiet_until_) return {.outcome = TierLookup::Outcome::kLate};
  v1::LookupRequest request;
  request.set_epoch(session->epoch);
  ToProto(prompt, request.mutable_prompt());
  request.mutable_ended_restores()->Add(unheard_.begin(), unheard_.end());
  request.set_session_key(std::string(prompt.session_key));
  if (measured_ != PlannerRates()) {
    ToProto(measured_, request.mutable_measured());
  }
  v1::LookupResponse response;
  grpc::ClientContext context;
  SetDeadline(context, now + deadlines::kLookup);
  const grpc::Status status = stub_->Lookup(&context, request, &response);
  if (!status.ok()) {
    const bool late =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (late) quiet_until_ = steady_clock::now() + deadlines::kLookupPause;
    return {.outcome = late ? TierLookup::Outcome::kLate
                            : TierLookup::Outcome::kDetached};
  }
  unheard_.clear();
  TierLookup lookup{
      .outcome = TierLookup::Outcome::kAnswered,
      .minimum_tokens = static_cast<int>(response.minimum_tokens()),
      .store_entry_bytes = response.store_entry_bytes(),
      .foreign = response.foreign(),
      .remembered = engine::FromProto(response.remembered())};
  for (const v1::TierCandidate& proto : response.candidates()) {
    const auto candidate = engine::FromProto(proto);
    if (candidate && HasTail(prompt, *candidate, proto)) {
      lookup.candidates.push_back(*candidate);
    }
  }
  return lookup;
}

AdmittedLines RemoteTiers::Admit(const PromptView& prompt, int resumed_at,
                                 const std::string& session_key, int head) {
  const attach::AttachSession* session = Session();
  const auto now = steady_clock::now();
  if (session == nullptr || now < quiet_until_) return {};
  v1::AdmitRequest request;
  request.set_epoch(session->epoch);
  ToProto(prompt, request.mutable_prompt());
  request.set_resumed_at_tokens(static_cast<std::uint32_t>(resumed_at));
  request.set_session_key(session_key);
  request.set_head_tokens(static_cast<std::uint32_t>(head));
  v1::AdmitResponse response;
  grpc::ClientContext context;
  SetDeadline(context, now + deadlines::kLookup);
  const grpc::Status status = stub_->Admit(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    quiet_until_ = steady_clock::now() + deadlines::kLookupPause;
  }
  if (!status.ok()) return {};
  AdmittedLines lines;
  for (const std::uint32_t line : response.anchor_positions_tokens()) {
    if (line <= prompt.ids.size()) lines.disk.push_back(static_cast<int>(line));
  }
  if (response.store_line_tokens() <= prompt.ids.size()) {
    lines.store = static_cast<int>(response.store_line_tokens());
  }
  return lines;
}

absl::Status RemoteTiers::Restore(const RestoreJob& job) {
  if (Session() == nullptr) {
    return absl::UnavailableError("no cache service is attached");
  }
  // Held to the end: the staging memory stays mapped whatever happens.
  const auto session = session_;
  const Time deadline = steady_clock::now() + job.deadline;
  const std::uint64_t id = next_restore_++;
  row_bytes_ = 0;
  state_bytes_ = 0;
  absl::Status status = Begin(job, id, deadline);
  if (status.ok()) status = ReadPieces(job, id, deadline);
  End(id);
  return status;
}

absl::Status RemoteTiers::Begin(const RestoreJob& job, std::uint64_t id,
                                Time deadline) {
  v1::RestoreBeginRequest request;
  request.set_epoch(session_->epoch);
  request.set_restore_id(id);
  ToProto(job.candidate, request.mutable_candidate());
  const auto ids = job.ids.first(job.candidate.position);
  request.mutable_key_ids()->Add(ids.begin(), ids.end());
  request.set_have_tokens(static_cast<std::uint32_t>(job.target.have_tokens));
  request.set_deadline_ms(static_cast<std::uint32_t>(job.deadline.count()));
  request.set_touch(job.touch);
  v1::RestoreBeginResponse response;
  grpc::ClientContext context;
  SetDeadline(context, deadline);
  return FromGrpcStatus(stub_->RestoreBegin(&context, request, &response),
                        "begin a restore");
}

absl::Status RemoteTiers::ReadPieces(const RestoreJob& job, std::uint64_t id,
                                     Time deadline) {
  v1::RestoreNextRequest request;
  request.set_epoch(session_->epoch);
  request.set_restore_id(id);
  for (;;) {
    if (job.stop && job.stop()) return absl::CancelledError("cancelled");
    v1::RestoreNextResponse response;
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    const grpc::Status status =
        stub_->RestoreNext(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status, "read a restore");
    request.clear_returned();
    for (const v1::RestorePiece& piece : response.pieces()) {
      if (auto s = Take(piece, job); !s.ok()) return s;
      *request.add_returned() = piece.slot();
    }
    // The last slots come back with the end of the restore.
    if (response.last()) return CheckFilled(job);
  }
}

absl::Status RemoteTiers::CheckFilled(const RestoreJob& job) const {
  const RestoreTarget& target = job.target;
  const std::uint64_t rows =
      target.blocks.size() * target.block_bytes - HaveBytes(target);
  if (row_bytes_ == rows && state_bytes_ == target.state_image.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      fmt::format("a restore of {} + {} bytes came to {} + {}", rows,
                  target.state_image.size(), row_bytes_, state_bytes_));
}

absl::Status RemoteTiers::Take(const v1::RestorePiece& piece,
                               const RestoreJob& job) {
  const RestoreTarget& target = job.target;
  const std::uint64_t room = piece.what() == v1::RestorePiece::STATE
                                 ? target.state_image.size()
                                 : target.blocks.size() * target.block_bytes;
  const std::uint64_t slot_bytes = session_->slot_bytes();
  if (piece.slot().slot() >= session_->staging_slots ||
      piece.bytes() > slot_bytes ||
      piece.slot_offset_bytes() > slot_bytes - piece.bytes() ||
      piece.bytes() > room ||
      piece.target_offset_bytes() > room - piece.bytes()) {
    return absl::InternalError(
        fmt::format("a piece of {} bytes for {} does not fit", piece.bytes(),
                    piece.target_offset_bytes()));
  }
  const std::span<const std::byte> from(session_->staging.data() +
                                            piece.slot().slot() * slot_bytes +
                                            piece.slot_offset_bytes(),
                                        piece.bytes());
  if (piece.what() == v1::RestorePiece::STATE) {
    std::memcpy(target.state_image.data() + piece.target_offset_bytes(),
                from.data(), from.size());
    state_bytes_ += from.size();
  } else {
    const auto rows = ScatterRows(target, piece.target_offset_bytes(), from);
    if (!rows.ok()) return rows.status();
    row_bytes_ += *rows;
  }
  return absl::OkStatus();
}

void RemoteTiers::Drained() {
  const attach::AttachSession* session = Session();
  if (session == nullptr) return;
  v1::DrainedRequest request;
  request.set_epoch(session->epoch);
  v1::DrainedResponse response;
  grpc::ClientContext context;
  SetDeadline(context, steady_clock::now() + deadlines::kControl);
  const grpc::Status status = stub_->Drained(&context, request, &response);
  spdlog::info("drained residents={} status=\"{}\"", response.residents(),
               status.ok() ? "ok" : status.error_message());
}

std::vector<KeptResident> RemoteTiers::Residents() {
  const attach::AttachSession* session = Session();
  if (session == nullptr) return {};
  v1::ResidentsRequest request;
  request.set_epoch(session->epoch);
  v1::ResidentsResponse response;
  grpc::ClientContext context;
  SetDeadline(context, steady_clock::now() + deadlines::kControl);
  const grpc::Status status = stub_->Residents(&context, request, &response);
  if (!status.ok()) {
    spdlog::warn("residents of the last stop: {}", status.error_message());
    return {};
  }
  std::vector<KeptResident> kept;
  for (const v1::Resident& proto : response.residents()) {
    if (auto resident = FromProto(proto)) kept.push_back(*std::move(resident));
  }
  return kept;
}

void RemoteTiers::End(std::uint64_t id) {
  // Told again with the next lookup when it does not arrive.
  unheard_.push_back(id);
  if (unheard_.size() > kMostUnheard) unheard_.erase(unheard_.begin());
  if (!session_->open) return;
  v1::RestoreEndRequest request;
  request.set_epoch(session_->epoch);
  request.mutable_restore_ids()->Add(unheard_.begin(), unheard_.end());
  v1::RestoreEndResponse response;
  grpc::ClientContext context;
  SetDeadline(context, steady_clock::now() + deadlines::kLookup);
  if (stub_->RestoreEnd(&context, request, &response).ok()) unheard_.clear();
}

}  // namespace holdfast::engine
