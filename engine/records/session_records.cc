#include "engine/records/session_records.h"

#include <algorithm>
#include <iterator>

#include "shared/first_number.h"

namespace holdfast::engine {
namespace {

// Answers wait for their request's end for moments only.
constexpr std::size_t kMostEarly = 64;

// A gateway outlives engines and keeps what one of them sent.
std::uint64_t FirstRevision() {
  static const std::uint64_t first = RandomFirstNumber();
  return first;
}

std::size_t CommonPrefix(std::span<const std::int32_t> a,
                         std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::size_t SessionRecord::Bytes() const {
  std::size_t bytes = sizeof(*this) + ids.size() * sizeof(ids[0]);
  for (const RecordedTurn& turn : turns) {
    bytes += sizeof(turn) + turn.sent.size();
  }
  return bytes;
}

void SessionRecords::Ended(const PrefixKey& root,
                           const std::string& session_key, std::uint64_t ticket,
                           std::vector<std::int32_t> ids, int end) {
  const std::lock_guard lock(mutex_);
  const Name name(root, session_key);
  Session& session = Open(name);
  SessionRecord record;
  record.ids = std::move(ids);
  record.end = end;
  // The branch that the request goes on from, else one to begin.
  std::size_t from = session.branches.size();
  std::size_t most = 0;
  for (std::size_t i = 0; i < session.branches.size(); ++i) {
    const std::size_t shared =
        CommonPrefix(session.branches[i].record->ids, record.ids);
    if (shared <= most) continue;
    most = shared;
    from = i;
  }
  std::size_t replaced = session.branches.size();
  if (from < session.branches.size()) {
    const SessionRecord& old = *session.branches[from].record;
    for (const RecordedTurn& turn : old.turns) {
      if (static_cast<std::size_t>(turn.end) <= most) {
        record.turns.push_back(turn);
      }
    }
    if (most >= static_cast<std::size_t>(old.end)) replaced = from;
  }
  Put(session, replaced, std::move(record), ticket);
  TakeEarly(name, session.branches.front());
  Trim();
}

bool SessionRecords::AddTurn(const PrefixKey& root,
                             const std::string& session_key,
                             std::uint64_t ticket, RecordedTurn turn) {
  if (turn.sent.size() > kMostSentBytes || ticket == 0) return false;
  const std::lock_guard lock(mutex_);
  const Name name(root, session_key);
  if (Session* const session = Look(name, /*touch=*/false)) {
    for (Branch& branch : session->branches) {
      if (branch.ticket != ticket) continue;
      const bool added = AddTo(branch, std::move(turn));
      Trim();
      return added;
    }
  }
  early_.push_back({name, ticket, std::move(turn)});
  if (early_.size() > kMostEarly) early_.pop_front();
  return true;
}

std::vector<RecordRef> SessionRecords::Find(const PrefixKey& root,
                                            const std::string& session_key,
                                            bool touch) {
  const std::lock_guard lock(mutex_);
  std::vector<RecordRef> found;
  if (const Session* const session = Look({root, session_key}, touch)) {
    for (const Branch& branch : session->branches) {
      found.push_back(branch.record);
    }
  }
  return found;
}

RecordRef SessionRecords::FindEnd(const PrefixKey& root,
                                  const std::string& session_key,
                                  std::span<const KeyId> ids) {
  for (RecordRef& record : Find(root, session_key, /*touch=*/false)) {
    const std::span forwarded = std::span(record->ids).first(record->end);
    if (std::ranges::equal(forwarded, ids, [](std::int32_t a, KeyId b) {
          return static_cast<KeyId>(a) == b;
        })) {
      return std::move(record);
    }
  }
  return nullptr;
}

void SessionRecords::Adopt(const PrefixKey& root,
                           const std::string& session_key,
                           SessionRecord record) {
  const std::lock_guard lock(mutex_);
  Session& session = Open({root, session_key});
  for (const Branch& branch : session.branches) {
    if (branch.record->ids == record.ids) return;
  }
  Put(session, session.branches.size(), std::move(record), /*ticket=*/0);
  Trim();
}

void SessionRecords::Clear() {
  const std::lock_guard lock(mutex_);
  sessions_.clear();
  by_name_.clear();
  early_.clear();
  bytes_ = 0;
}

std::size_t SessionRecords::sessions() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

std::size_t SessionRecords::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

SessionRecords::Session* SessionRecords::Look(const Name& name, bool touch) {
  const auto at = by_name_.find(name);
  if (at == by_name_.end()) return nullptr;
  if (touch) sessions_.splice(sessions_.begin(), sessions_, at->second);
  return &*at->second;
}

SessionRecords::Session& SessionRecords::Open(const Name& name) {
  if (Session* const session = Look(name, /*touch=*/true)) return *session;
  sessions_.push_front({name, {}});
  by_name_[name] = sessions_.begin();
  return sessions_.front();
}

// In front of the others, in the place of the branch `replaced` if there is
// one.
void SessionRecords::Put(Session& session, std::size_t replaced,
                         SessionRecord record, std::uint64_t ticket) {
  record.branch = next_branch_;
  if (replaced < session.branches.size()) {
    const auto old = session.branches.begin() + replaced;
    record.branch = old->record->branch;
    bytes_ -= old->record->Bytes();
    session.branches.erase(old);
  } else {
    ++next_branch_;
  }
  record.revision = FirstRevision() + next_revision_++;
  bytes_ += record.Bytes();
  session.branches.insert(
      session.branches.begin(),
      {std::make_shared<SessionRecord>(std::move(record)), ticket});
  if (session.branches.size() > kBranches) {
    bytes_ -= session.branches.back().record->Bytes();
    session.branches.pop_back();
  }
}

void SessionRecords::Replace(Branch& branch, SessionRecord record) {
  bytes_ -= branch.record->Bytes();
  record.revision = FirstRevision() + next_revision_++;
  bytes_ += record.Bytes();
  branch.record = std::make_shared<SessionRecord>(std::move(record));
}

bool SessionRecords::AddTo(Branch& branch, RecordedTurn turn) {
  SessionRecord record = *branch.record;
  // Told again: the newer word counts.
  if (!record.turns.empty() && record.turns.back().begin == turn.begin) {
    record.turns.pop_back();
  }
  const int below = record.turns.empty() ? 0 : record.turns.back().end;
  if (turn.begin < below || turn.end < turn.begin ||
      static_cast<std::size_t>(turn.end) > record.ids.size()) {
    return false;
  }
  record.turns.push_back(std::move(turn));
  Replace(branch, std::move(record));
  return true;
}

void SessionRecords::TakeEarly(const Name& name, Branch& branch) {
  if (branch.ticket == 0) return;
  for (auto early = early_.begin(); early != early_.end(); ++early) {
    if (early->ticket != branch.ticket || early->name != name) continue;
    AddTo(branch, std::move(early->turn));
    early_.erase(early);
    return;
  }
}

void SessionRecords::Trim() {
  while (!sessions_.empty() &&
         (sessions_.size() > limits_.sessions || bytes_ > limits_.bytes)) {
    for (const Branch& branch : sessions_.back().branches) {
      bytes_ -= branch.record->Bytes();
    }
    by_name_.erase(sessions_.back().name);
    sessions_.pop_back();
  }
}

}  // namespace holdfast::engine
