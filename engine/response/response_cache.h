// The tokens of greedy requests that were answered: an identical one is
// answered again without the model.
#ifndef HOLDFAST_ENGINE_RESPONSE_RESPONSE_CACHE_H_
#define HOLDFAST_ENGINE_RESPONSE_RESPONSE_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/scheduler/request.h"
#include "shared/prefix_key.h"
#include "shared/sha256.h"

namespace holdfast::engine {

// What an answer consists of, but for its timing.
struct Response {
  std::vector<OutputToken> tokens;
  FinishReason reason = FinishReason::kStop;
  int stop_string_index = 0;
  int prompt_tokens = 0;

  std::uint64_t bytes() const;
};

// Bounded by bytes; the least recently used goes first. Thread-safe.
class ResponseCache {
 public:
  // A longer answer is not kept, whatever the budget: it is sent at once, and
  // what a client has not taken yet is bounded too.
  static constexpr std::uint64_t kMaxResponseBytes = std::uint64_t{1} << 20;

  struct Stats {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
    std::uint64_t budget_bytes = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t evictions = 0;  // for another one
  };

  ResponseCache(const Sha256Digest& fingerprint, std::uint64_t budget_bytes)
      : fingerprint_(fingerprint), budget_bytes_(budget_bytes) {}

  // Of all that the answer depends on: model, salt, prompt, parameters, limits;
  // not of the request's id or session. Nothing for a request that is neither
  // answered from here nor kept: sampled, not of the default cache mode,
  // forced, with digests of the state, or of another model.
  std::optional<Sha256Digest> KeyOf(const Request& request) const;

  // Null: there is none. Counted.
  std::shared_ptr<const Response> Find(const Sha256Digest& key);
  // No effect when it is there already or does not fit.
  void Add(const Sha256Digest& key, Response response);
  // Returns how many went.
  std::uint64_t Clear();
  Stats stats() const;

 private:
  struct Entry {
    Sha256Digest key;
    std::shared_ptr<const Response> response;
  };
  void DropLast();  // needs mutex_

  const Sha256Digest fingerprint_;
  const std::uint64_t budget_bytes_;
  mutable std::mutex mutex_;  // guards everything below
  std::list<Entry> entries_;  // newest use first
  std::unordered_map<Sha256Digest, std::list<Entry>::iterator, PrefixKeyHash>
      by_key_;
  std::uint64_t bytes_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESPONSE_RESPONSE_CACHE_H_
