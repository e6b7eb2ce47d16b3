#include "gateway/service/record_cache.h"

#include <algorithm>
#include <utility>

#include "gateway/service/record_protos.h"

namespace holdfast::gateway {

std::size_t RecordCache::Session::Tokens() const {
  std::size_t tokens = 0;
  for (const Branch& branch : branches) tokens += branch.record->ids.size();
  return tokens;
}

const RecordCache::Session* RecordCache::Find(const SessionName& name) const {
  const auto at = std::ranges::find(sessions_, name, &Session::name);
  return at == sessions_.end() ? nullptr : &*at;
}

std::vector<RecordCache::Branch> RecordCache::FillKnown(
    const SessionName& name, v1::GetRecordsRequest* request) const {
  const Session* const session = Find(name);
  if (session == nullptr) return {};
  for (const Branch& branch : session->branches) {
    v1::GetRecordsRequest::Known* known = request->add_known();
    known->set_branch(branch.branch);
    known->set_revision(branch.revision);
  }
  return session->branches;
}

Records RecordCache::Take(const SessionName& name,
                          const std::vector<Branch>& known,
                          const v1::GetRecordsResponse& response) {
  Session now{name, {}};
  for (const v1::GetRecordsResponse::Branch& sent : response.branches()) {
    Branch branch{sent.branch(), sent.revision(), nullptr};
    if (sent.has_record()) {
      branch.record = std::make_shared<align::Record>(FromProto(sent.record()));
    } else {
      for (const Branch& had : known) {
        if (had.branch == branch.branch && had.revision == branch.revision) {
          branch.record = had.record;
        }
      }
    }
    if (branch.record != nullptr) now.branches.push_back(std::move(branch));
  }
  Records records;
  for (const Branch& branch : now.branches) records.push_back(branch.record);
  std::erase_if(sessions_,
                [&](const Session& session) { return session.name == name; });
  sessions_.push_front(std::move(now));
  std::size_t tokens = 0;
  std::size_t kept = 0;
  std::erase_if(sessions_, [&](const Session& session) {
    tokens += session.Tokens();
    return ++kept > kMostSessions || tokens > kMostTokens;
  });
  return records;
}

}  // namespace holdfast::gateway
