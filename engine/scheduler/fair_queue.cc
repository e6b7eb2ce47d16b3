#include "engine/scheduler/fair_queue.h"

#include <algorithm>
#include <utility>

namespace holdfast::engine {

void FairQueue::Push(std::shared_ptr<Job> job) {
  const Request& request = job->request;
  auto tenant = std::ranges::find(tenants_, request.salt, &Tenant::salt);
  if (tenant == tenants_.end()) {
    tenant = tenants_.insert(tenant, {.salt = request.salt, .sessions = {}});
  }
  std::list<Session>& sessions = tenant->sessions;
  auto session =
      std::ranges::find(sessions, request.session_key, &Session::key);
  if (session == sessions.end()) {
    session =
        sessions.insert(session, {.key = request.session_key, .jobs = {}});
  }
  session->jobs.push_back(std::move(job));
  ++size_;
}

std::shared_ptr<Job> FairQueue::Pop() {
  if (tenants_.empty()) return nullptr;
  const auto tenant = tenants_.begin();
  std::list<Session>& sessions = tenant->sessions;
  const auto session = sessions.begin();
  std::shared_ptr<Job> job = std::move(session->jobs.front());
  session->jobs.pop_front();
  --size_;
  // Who has more to run goes to the end of its row.
  if (session->jobs.empty()) {
    sessions.erase(session);
  } else {
    sessions.splice(sessions.end(), sessions, session);
  }
  if (sessions.empty()) {
    tenants_.erase(tenant);
  } else {
    tenants_.splice(tenants_.end(), tenants_, tenant);
  }
  return job;
}

bool FairQueue::Remove(const std::shared_ptr<Job>& job) {
  for (auto tenant = tenants_.begin(); tenant != tenants_.end(); ++tenant) {
    for (auto at = tenant->sessions.begin(); at != tenant->sessions.end();
         ++at) {
      if (std::erase(at->jobs, job) == 0) continue;
      --size_;
      if (at->jobs.empty()) tenant->sessions.erase(at);
      if (tenant->sessions.empty()) tenants_.erase(tenant);
      return true;
    }
  }
  return false;
}

}  // namespace holdfast::engine
