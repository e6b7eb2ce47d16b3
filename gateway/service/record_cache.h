// Session records as the engine gave them, so that one that has not changed
// does not travel again.
#ifndef HOLDFAST_GATEWAY_SERVICE_RECORD_CACHE_H_
#define HOLDFAST_GATEWAY_SERVICE_RECORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/v1/record.pb.h"
#include "shared/align/record.h"

namespace holdfast::gateway {

// Whose records: of which model, for which tenant.
struct SessionName {
  std::string fingerprint;
  std::string salt;
  std::string key;

  bool operator==(const SessionName&) const = default;
};

using Records = std::vector<std::shared_ptr<const align::Record>>;

// Of the few sessions that were active last, bounded in tokens too. On the io
// thread.
class RecordCache {
 public:
  static constexpr std::size_t kMostSessions = 32;
  static constexpr std::size_t kMostTokens = std::size_t{8} << 20;

  struct Branch {
    std::uint64_t branch = 0;
    std::uint64_t revision = 0;
    std::shared_ptr<const align::Record> record;
  };

  // Says in the request what need not be sent, and returns it: Take needs it,
  // since the cache may have dropped it by the time the answer comes.
  std::vector<Branch> FillKnown(const SessionName& name,
                                v1::GetRecordsRequest* request) const;
  // The session's records, in the order of the answer.
  Records Take(const SessionName& name, const std::vector<Branch>& known,
               const v1::GetRecordsResponse& response);

 private:
  struct Session {
    SessionName name;
    std::vector<Branch> branches;

    std::size_t Tokens() const;
  };

  const Session* Find(const SessionName& name) const;

  std::list<Session> sessions_;  // most recently used first
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_RECORD_CACHE_H_
