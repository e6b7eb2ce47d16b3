// Session records: what was served in a conversation, so that a client's copy
// of it can be served from the same tokens again.
#ifndef HOLDFAST_ENGINE_RECORDS_SESSION_RECORDS_H_
#define HOLDFAST_ENGINE_RECORDS_SESSION_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/prefix_key.h"

namespace holdfast::engine {

// What was sent of one answer: for the engine a range of tokens with bytes that
// only gateways read (record_bytes.h).
struct RecordedTurn {
  int begin = 0;
  int end = 0;
  std::string sent;
};

// One branch of a session. Never changes; a newer one has another revision.
struct SessionRecord {
  std::uint64_t branch = 0;
  std::uint64_t revision = 0;
  std::vector<std::int32_t> ids;    // perhaps one more than was forwarded
  int end = 0;                      // forwarded: the end anchor
  std::vector<RecordedTurn> turns;  // ascending, within ids

  std::size_t Bytes() const;
};
using RecordRef = std::shared_ptr<const SessionRecord>;

// Of each session, named by the root of its prefix keys (model and salt) and
// its key, up to kBranches, told apart by tokens alone: a request that goes on
// where a branch ended takes its place, any other begins one. Bounded in
// sessions and bytes: the least recently used goes. Thread-safe.
class SessionRecords {
 public:
  static constexpr std::size_t kBranches = 4;
  static constexpr std::size_t kMostSentBytes = std::size_t{1} << 20;
  struct Limits {
    std::size_t sessions = 4096;
    std::size_t bytes = std::size_t{128} << 20;
  };

  SessionRecords() : SessionRecords(Limits()) {}
  explicit SessionRecords(const Limits& limits) : limits_(limits) {}
  SessionRecords(const SessionRecords&) = delete;
  SessionRecords& operator=(const SessionRecords&) = delete;

  // A request of the session was served from `ids` (prompt and answer), of
  // which `end` were forwarded. Answers that an earlier branch had in these
  // tokens are kept. `ticket`: the request's, for AddTurn; 0: none.
  void Ended(const PrefixKey& root, const std::string& session_key,
             std::uint64_t ticket, std::vector<std::int32_t> ids, int end);
  // What was sent of the answer of the request with this ticket. Where that has
  // not ended yet, it is kept until then, as long as few others come. False
  // when it lies outside the record's tokens, within an earlier answer, or is
  // over kMostSentBytes.
  bool AddTurn(const PrefixKey& root, const std::string& session_key,
               std::uint64_t ticket, RecordedTurn turn);

  // Most recently ended first. `touch`: counts as a use.
  std::vector<RecordRef> Find(const PrefixKey& root,
                              const std::string& session_key, bool touch);
  // The branch that was forwarded up to the end of exactly these ids; null:
  // there is none.
  RecordRef FindEnd(const PrefixKey& root, const std::string& session_key,
                    std::span<const KeyId> ids);
  // A branch from elsewhere, which has no number yet. Nothing where the session
  // has one with the same ids already.
  void Adopt(const PrefixKey& root, const std::string& session_key,
             SessionRecord record);

  void Clear();
  std::size_t sessions() const;
  std::size_t bytes() const;

 private:
  using Name = std::pair<PrefixKey, std::string>;
  struct Branch {
    RecordRef record;
    std::uint64_t ticket = 0;  // of the last request
  };
  struct Session {
    Name name;
    std::vector<Branch> branches;  // most recently ended first
  };
  struct Early {  // came before its request's end
    Name name;
    std::uint64_t ticket = 0;
    RecordedTurn turn;
  };
  using Sessions = std::list<Session>;  // most recently used first

  // mutex_ is held in all of these.
  Session& Open(const Name& name);
  Session* Look(const Name& name, bool touch);
  void Put(Session& session, std::size_t replaced, SessionRecord record,
           std::uint64_t ticket);
  void Replace(Branch& branch, SessionRecord record);
  bool AddTo(Branch& branch, RecordedTurn turn);
  void TakeEarly(const Name& name, Branch& branch);
  void Trim();

  const Limits limits_;
  mutable std::mutex mutex_;
  Sessions sessions_;  // guarded by mutex_, like all below
  std::map<Name, Sessions::iterator> by_name_;
  std::deque<Early> early_;
  std::size_t bytes_ = 0;
  std::uint64_t next_branch_ = 1;
  std::uint64_t next_revision_ = 1;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RECORDS_SESSION_RECORDS_H_
