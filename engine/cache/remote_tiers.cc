#include "engine/cache/remote_tiers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/cache/call_deadline.h"
#include "engine/cache/tier_protos.h"
#include "grpcpp/grpcpp.h"
#include "shared/deadlines.h"
#include "shared/first_number.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::steady_clock;

// How often a service that has not read all residents yet is asked for them.
constexpr int kResidentsAsks = 4;

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

// What a restore without an attach comes to.
class NoRestore final : public TierRestore {
 public:
  std::optional<RestoreEnd> Poll() override {
    return RestoreEnd{absl::UnavailableError("no cache service is attached")};
  }
};

class RemoteRestore final : public TierRestore {
 public:
  explicit RemoteRestore(std::shared_ptr<RestoreCall> call)
      : call_(std::move(call)) {}
  ~RemoteRestore() override { call_->Abandon(); }
  std::optional<RestoreEnd> Poll() override { return call_->Poll(); }

 private:
  const std::shared_ptr<RestoreCall> call_;
};

}  // namespace

RemoteTiers::RemoteTiers(const attach::AttachClient& client,
                         std::chrono::milliseconds lookup)
    : client_(client),
      lookup_(lookup),
      next_restore_(RandomFirstNumber()),
      stores_(client) {}

const attach::AttachSession* RemoteTiers::Session() {
  auto now = client_.session();
  if (now != session_) {
    // Slots and restores end with an attach.
    ended_ = std::make_shared<EndedRestores>();
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
  const std::vector<std::uint64_t> ended = ended_->Take();
  request.mutable_ended_restores()->Add(ended.begin(), ended.end());
  request.set_session_key(std::string(prompt.session_key));
  if (measured_ != PlannerRates()) {
    ToProto(measured_, request.mutable_measured());
  }
  v1::LookupResponse response;
  grpc::ClientContext context;
  SetDeadline(context, now + lookup_);
  const grpc::Status status = stub_->Lookup(&context, request, &response);
  if (!status.ok()) {
    ended_->Add(ended);
    const bool late =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (late) quiet_until_ = steady_clock::now() + deadlines::kLookupPause;
    return {.outcome = late ? TierLookup::Outcome::kLate
                            : TierLookup::Outcome::kDetached};
  }
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
  SetDeadline(context, now + lookup_);
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

std::unique_ptr<TierRestore> RemoteTiers::StartRestore(RestoreJob job) {
  if (Session() == nullptr) return std::make_unique<NoRestore>();
  auto call = std::make_shared<RestoreCall>(session_, ended_, next_restore_++,
                                            std::move(job));
  restores_.Add(call);
  return std::make_unique<RemoteRestore>(std::move(call));
}

std::uint64_t RemoteTiers::FreeStore(std::uint64_t bytes) {
  const attach::AttachSession* session = Session();
  const auto now = steady_clock::now();
  if (session == nullptr || now < quiet_until_) return 0;
  v1::FreeStoreRequest request;
  request.set_epoch(session->epoch);
  request.set_bytes(bytes);
  v1::FreeStoreResponse response;
  grpc::ClientContext context;
  SetDeadline(context, now + lookup_);
  const grpc::Status status = stub_->FreeStore(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    quiet_until_ = steady_clock::now() + deadlines::kLookupPause;
  }
  return response.freed_bytes();
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
  grpc::Status status;
  // A service that answers, but has not read all of it, goes on when it is
  // asked again. One that does not answer costs one deadline.
  for (int asked = 0; asked < kResidentsAsks; ++asked) {
    grpc::ClientContext context;
    SetDeadline(context, steady_clock::now() + deadlines::kControl);
    status = stub_->Residents(&context, request, &response);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
  }
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

}  // namespace holdfast::engine
