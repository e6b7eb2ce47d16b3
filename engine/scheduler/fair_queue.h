// Requests that wait for a seat, in an order that lets no client starve
// another.
#ifndef HOLDFAST_ENGINE_SCHEDULER_FAIR_QUEUE_H_
#define HOLDFAST_ENGINE_SCHEDULER_FAIR_QUEUE_H_

#include <deque>
#include <list>
#include <memory>
#include <string>

#include "engine/scheduler/request.h"

namespace holdfast::engine {

// Salts take turns; so do the session keys of one salt; the requests of one key
// run in order of arrival. One thread at a time.
class FairQueue {
 public:
  void Push(std::shared_ptr<Job> job);
  // Null when nothing waits.
  std::shared_ptr<Job> Pop();
  // False when the job does not wait here.
  bool Remove(const std::shared_ptr<Job>& job);
  int size() const { return size_; }

 private:
  struct Session {
    std::string key;
    std::deque<std::shared_ptr<Job>> jobs;  // never empty
  };
  struct Tenant {
    std::string salt;
    std::list<Session> sessions;  // whose turn is next first; never empty
  };

  std::list<Tenant> tenants_;  // whose turn is next first
  int size_ = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_FAIR_QUEUE_H_
