#include "engine/service/record_calls.h"

#include <algorithm>
#include <cstddef>

#include "engine/records/record_bytes.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {
namespace {

// A gRPC message holds 4 MiB.
constexpr std::size_t kMostBytes = std::size_t{3} << 20;

}  // namespace

void GetRecords(SessionRecords& records, const Sha256Digest& fingerprint,
                const v1::GetRecordsRequest& request,
                v1::GetRecordsResponse* response) {
  const auto found =
      records.Find(RootPrefixKey(fingerprint, request.salt()),
                   request.session_key(), /*touch=*/!request.peek());
  std::size_t bytes = 0;
  for (const RecordRef& record : found) {
    v1::GetRecordsResponse::Branch branch;
    branch.set_branch(record->branch);
    branch.set_revision(record->revision);
    const bool known = std::ranges::any_of(
        request.known(), [&](const v1::GetRecordsRequest::Known& theirs) {
          return theirs.branch() == record->branch &&
                 theirs.revision() == record->revision;
        });
    if (!known) ToProto(*record, branch.mutable_record());
    const std::size_t size = branch.ByteSizeLong();
    if (bytes + size > kMostBytes) continue;
    bytes += size;
    *response->add_branches() = std::move(branch);
  }
}

void RecordTurn(SessionRecords& records, const Sha256Digest& fingerprint,
                const v1::RecordTurnRequest& request,
                v1::RecordTurnResponse* response) {
  response->set_recorded(records.AddTurn(
      RootPrefixKey(fingerprint, request.salt()), request.session_key(),
      request.record_ticket(), FromProto(request.turn())));
}

}  // namespace holdfast::engine
