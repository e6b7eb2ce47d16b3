#include "engine/cache/restore_call.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "engine/cache/call_deadline.h"
#include "engine/cache/tier_protos.h"
#include "engine/model_status.h"
#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "shared/cache_layout.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"

namespace holdfast::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMostUnheard = 64;

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

void EndedRestores::Add(const std::vector<std::uint64_t>& ids) {
  const std::lock_guard lock(mutex_);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (ids_.size() > kMostUnheard) {
    ids_.erase(ids_.begin(), ids_.end() - kMostUnheard);
  }
}

std::vector<std::uint64_t> EndedRestores::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ids_, {});
}

RestoreCall::RestoreCall(std::shared_ptr<const attach::AttachSession> session,
                         std::shared_ptr<EndedRestores> ended, std::uint64_t id,
                         RestoreJob job)
    : session_(std::move(session)),
      ended_(std::move(ended)),
      job_(std::move(job)),
      id_(id),
      start_(steady_clock::now()),
      deadline_(start_ + job_.deadline),
      rows_room_(job_.target.blocks.size() * job_.target.block_bytes),
      state_room_(job_.target.state_image.size()),
      have_bytes_(HaveBytes(job_.target)) {
  begin_.set_epoch(session_->epoch);
  begin_.set_restore_id(id_);
  ToProto(job_.candidate, begin_.mutable_candidate());
  const auto ids = job_.ids.first(job_.candidate.position);
  begin_.mutable_key_ids()->Add(ids.begin(), ids.end());
  begin_.set_have_tokens(static_cast<std::uint32_t>(job_.target.have_tokens));
  begin_.set_deadline_ms(static_cast<std::uint32_t>(job_.deadline.count()));
  begin_.set_touch(job_.touch);
}

void RestoreCall::Run() {
  const auto stub = v1::Cache::NewStub(session_->channel);
  absl::Status status = Begin(*stub);
  if (status.ok()) status = ReadPieces(*stub);
  {
    const std::lock_guard lock(mutex_);
    end_ = {
        std::move(status),
        std::chrono::duration<double>(steady_clock::now() - start_).count()};
  }
  if (job_.bell != nullptr) job_.bell->Ring();
  TellEnd(*stub);
}

std::optional<RestoreEnd> RestoreCall::Poll() {
  {
    const std::lock_guard lock(mutex_);
    if (handed_ != nullptr) {
      copied_ = absl::OkStatus();
      for (const v1::RestorePiece& piece : handed_->pieces()) {
        if (copied_.ok()) copied_ = Copy(piece);
      }
      handed_ = nullptr;
    } else if (end_) {
      return end_;
    } else if (const auto now = steady_clock::now(); now >= deadline_) {
      // It waits for a thread, or the cache service is about to be late.
      return RestoreEnd{absl::DeadlineExceededError("read a restore: late"),
                        std::chrono::duration<double>(now - start_).count()};
    }
  }
  taken_.notify_all();
  return std::nullopt;
}

void RestoreCall::Abandon() {
  abandoned_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (calling_ != nullptr) calling_->TryCancel();
    handed_ = nullptr;
  }
  taken_.notify_all();
  // A copy that began before ends here.
  const std::lock_guard lock(copy_mutex_);
}

template <typename Request, typename Response>
absl::Status RestoreCall::Call(
    v1::Cache::Stub& stub,
    grpc::Status (v1::Cache::Stub::*method)(grpc::ClientContext*,
                                            const Request&, Response*),
    const Request& request, Response& response, const char* what) {
  grpc::ClientContext context;
  SetDeadline(context, deadline_);
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return absl::CancelledError("given up");
    calling_ = &context;
  }
  const grpc::Status status = (stub.*method)(&context, request, &response);
  const std::lock_guard lock(mutex_);
  calling_ = nullptr;
  return FromGrpcStatus(status, what);
}

absl::Status RestoreCall::Begin(v1::Cache::Stub& stub) {
  v1::RestoreBeginResponse response;
  return Call(stub, &v1::Cache::Stub::RestoreBegin, begin_, response,
              "begin a restore");
}

absl::Status RestoreCall::ReadPieces(v1::Cache::Stub& stub) {
  v1::RestoreNextRequest request;
  request.set_epoch(session_->epoch);
  request.set_restore_id(id_);
  for (;;) {
    if (job_.stop && job_.stop()) return absl::CancelledError("cancelled");
    v1::RestoreNextResponse response;
    if (auto s = Call(stub, &v1::Cache::Stub::RestoreNext, request, response,
                      "read a restore");
        !s.ok()) {
      return s;
    }
    request.clear_returned();
    if (auto s = Accept(response); !s.ok()) return s;
    for (const v1::RestorePiece& piece : response.pieces()) {
      *request.add_returned() = piece.slot();
    }
    // The last slots come back with the end of the restore.
    if (response.last()) return CheckFilled();
  }
}

absl::Status RestoreCall::Accept(const v1::RestoreNextResponse& response) {
  for (const v1::RestorePiece& piece : response.pieces()) {
    if (auto s = Check(piece); !s.ok()) return s;
  }
  if (job_.target.backend != nullptr) return HandOver(response);
  for (const v1::RestorePiece& piece : response.pieces()) {
    if (auto s = Copy(piece); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RestoreCall::HandOver(const v1::RestoreNextResponse& response) {
  std::unique_lock lock(mutex_);
  if (abandoned_) return absl::CancelledError("given up");
  handed_ = &response;
  lock.unlock();
  if (job_.bell != nullptr) job_.bell->Ring();
  lock.lock();
  const bool taken =
      taken_.wait_until(lock, deadline_, [this] { return handed_ == nullptr; });
  handed_ = nullptr;
  if (abandoned_) return absl::CancelledError("given up");
  if (!taken) return absl::DeadlineExceededError("the engine took no pieces");
  return copied_;
}

absl::Status RestoreCall::Check(const v1::RestorePiece& piece) const {
  const std::uint64_t room =
      piece.what() == v1::RestorePiece::STATE ? state_room_ : rows_room_;
  const std::uint64_t slot_bytes = session_->slot_bytes();
  if (piece.slot().slot() < session_->staging_slots &&
      piece.bytes() <= slot_bytes &&
      piece.slot_offset_bytes() <= slot_bytes - piece.bytes() &&
      piece.bytes() <= room &&
      piece.target_offset_bytes() <= room - piece.bytes()) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      fmt::format("a piece of {} bytes for {} does not fit", piece.bytes(),
                  piece.target_offset_bytes()));
}

absl::Status RestoreCall::Copy(const v1::RestorePiece& piece) {
  const std::lock_guard lock(copy_mutex_);
  if (abandoned_) return absl::CancelledError("given up");
  const RestoreTarget& target = job_.target;
  const std::span<const std::byte> from(
      session_->staging.data() + piece.slot().slot() * session_->slot_bytes() +
          piece.slot_offset_bytes(),
      piece.bytes());
  if (piece.what() == v1::RestorePiece::STATE) {
    std::memcpy(target.state_image.data() + piece.target_offset_bytes(),
                from.data(), from.size());
    state_bytes_ += from.size();
    return absl::OkStatus();
  }
  const auto rows = ScatterRows(target, piece.target_offset_bytes(), from);
  if (!rows.ok()) return rows.status();
  row_bytes_ += *rows;
  return absl::OkStatus();
}

absl::Status RestoreCall::CheckFilled() const {
  const std::uint64_t rows = rows_room_ - have_bytes_;
  if (row_bytes_ == rows && state_bytes_ == state_room_) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      fmt::format("a restore of {} + {} bytes came to {} + {}", rows,
                  state_room_, row_bytes_, state_bytes_));
}

void RestoreCall::TellEnd(v1::Cache::Stub& stub) {
  // Told again with the next lookup when it does not arrive.
  ended_->Add({id_});
  if (!session_->open) return;
  const std::vector<std::uint64_t> ids = ended_->Take();
  v1::RestoreEndRequest request;
  request.set_epoch(session_->epoch);
  request.mutable_restore_ids()->Add(ids.begin(), ids.end());
  v1::RestoreEndResponse response;
  grpc::ClientContext context;
  SetDeadline(context, steady_clock::now() + deadlines::kLookup);
  if (!stub.RestoreEnd(&context, request, &response).ok()) ended_->Add(ids);
}

}  // namespace holdfast::engine
