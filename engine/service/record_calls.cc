#include "engine/service/record_calls.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "engine/records/record_bytes.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {
namespace {

// A gRPC message holds 4 MiB.
constexpr std::size_t kMostBytes = std::size_t{3} << 20;

void Answer(SessionRecords& records, const PrefixKey& root,
            const v1::GetRecordsRequest& request,
            v1::GetRecordsResponse* response) {
  std::size_t bytes = 0;
  for (const RecordRef& record :
       records.Find(root, request.session_key(), /*touch=*/!request.peek())) {
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

}  // namespace

void GetRecords(const std::shared_ptr<SessionRecords>& records,
                RecordSource* source, const Sha256Digest& fingerprint,
                const v1::GetRecordsRequest& request,
                v1::GetRecordsResponse* response, std::function<void()> done) {
  const PrefixKey root = RootPrefixKey(fingerprint, request.salt());
  Answer(*records, root, request, response);
  if (response->branches_size() > 0 || source == nullptr) return done();
  source->Fetch(
      root, request.session_key(),
      [records, root, &request, response,
       done = std::move(done)](const std::vector<std::string>& found) {
        for (const std::string& bytes : found) {
          auto record = DecodeRecord(bytes);
          if (record) {
            records->Adopt(root, request.session_key(), *std::move(record));
          }
        }
        Answer(*records, root, request, response);
        done();
      });
}

void RecordTurn(SessionRecords& records, RecordSource* source,
                const Sha256Digest& fingerprint,
                const v1::RecordTurnRequest& request,
                v1::RecordTurnResponse* response) {
  const PrefixKey root = RootPrefixKey(fingerprint, request.salt());
  const std::string& key = request.session_key();
  const RecordedTurn turn = FromProto(request.turn());
  response->set_recorded(
      records.AddTurn(root, key, request.record_ticket(), turn));
  if (!response->recorded() || source == nullptr) return;
  // One that is still to end takes the turn with it when it is stored.
  for (const RecordRef& record : records.Find(root, key, /*touch=*/false)) {
    if (record->turns.empty() || record->turns.back().begin != turn.begin ||
        record->turns.back().end != turn.end ||
        record->turns.back().sent != turn.sent) {
      continue;
    }
    return source->Put(root, key, std::span(record->ids).first(record->end),
                       EncodeRecord(*record));
  }
}

}  // namespace holdfast::engine
