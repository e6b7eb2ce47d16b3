#include "engine/response/response_cache.h"

#include <bit>
#include <string_view>
#include <utility>

namespace holdfast::engine {
namespace {

// An entry's place in the list and the table.
constexpr std::uint64_t kEntryBytes = 128;

// Each part with its length, so that no two requests give the same bytes.
class KeyHash {
 public:
  void Text(std::string_view text) {
    Number(text.size());
    sha_.Update(text);
  }
  void Number(std::uint64_t value) { sha_.UpdateU64(value); }
  void Number(int value) { Number(static_cast<std::uint64_t>(value)); }
  void Float(float value) {
    Number(std::uint64_t{std::bit_cast<std::uint32_t>(value)});
  }
  template <typename T>
  void Numbers(const std::vector<T>& values) {
    Number(values.size());
    sha_.Update(values.data(), values.size() * sizeof(T));
  }
  Sha256& sha() { return sha_; }

 private:
  Sha256 sha_;
};

void AddSampling(const SamplingParams& sampling, KeyHash& hash) {
  hash.Float(sampling.temperature);
  hash.Number(sampling.top_k);
  hash.Float(sampling.top_p);
  hash.Float(sampling.min_p);
  hash.Number(sampling.seed);
  hash.Float(sampling.repetition_penalty);
  hash.Float(sampling.presence_penalty);
  hash.Float(sampling.frequency_penalty);
  hash.Number(sampling.logit_bias.size());
  for (const auto& [id, bias] : sampling.logit_bias) {
    hash.Number(id);
    hash.Float(bias);
  }
}

void AddThinking(const std::optional<ThinkingLimit>& thinking, KeyHash& hash) {
  hash.Number(thinking ? 1 : 0);
  if (!thinking) return;
  hash.Number(thinking->tokens);
  hash.Number(thinking->open ? 1 : 0);
  hash.Text(thinking->open_tag);
  hash.Text(thinking->close_tag);
  hash.Number(thinking->open_id);
  hash.Number(thinking->close_id);
  hash.Numbers(thinking->words);
}

}  // namespace

std::uint64_t Response::bytes() const {
  std::uint64_t sum =
      kEntryBytes + sizeof(Response) + tokens.capacity() * sizeof(OutputToken);
  for (const OutputToken& token : tokens) {
    if (token.logprobs)
      sum += token.logprobs->top.capacity() * sizeof(TokenLogprob);
  }
  return sum;
}

std::optional<Sha256Digest> ResponseCache::KeyOf(const Request& request) const {
  if (request.sampling.temperature != 0 || request.digest ||
      request.cache_mode != CacheMode::kDefault || request.forced ||
      (request.fingerprint && *request.fingerprint != fingerprint_)) {
    return std::nullopt;
  }
  KeyHash hash;
  hash.sha().Update(fingerprint_);
  hash.Text(request.salt);
  hash.Numbers(request.prompt);
  AddSampling(request.sampling, hash);
  hash.Number(request.max_tokens);
  hash.Number(request.stop_strings.size());
  for (const std::string& stop : request.stop_strings) hash.Text(stop);
  hash.Number(request.ignore_eos ? 1 : 0);
  AddThinking(request.thinking, hash);
  hash.Number(request.top_logprobs ? *request.top_logprobs + 1 : 0);
  return hash.sha().Finish();
}

std::shared_ptr<const Response> ResponseCache::Find(const Sha256Digest& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

void ResponseCache::Add(const Sha256Digest& key, Response response) {
  const std::uint64_t bytes = response.bytes();
  if (bytes > kMaxResponseBytes || bytes > budget_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  while (bytes_ + bytes > budget_bytes_) DropLast();
  entries_.push_front(
      {key, std::make_shared<const Response>(std::move(response))});
  by_key_.emplace(key, entries_.begin());
  bytes_ += bytes;
}

void ResponseCache::DropLast() {
  const Entry& last = entries_.back();
  bytes_ -= last.response->bytes();
  by_key_.erase(last.key);
  entries_.pop_back();
  ++evictions_;
}

std::uint64_t ResponseCache::Clear() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t entries = entries_.size();
  entries_.clear();
  by_key_.clear();
  bytes_ = 0;
  return entries;
}

ResponseCache::Stats ResponseCache::stats() const {
  const std::lock_guard lock(mutex_);
  return {.entries = entries_.size(),
          .bytes = bytes_,
          .budget_bytes = budget_bytes_,
          .hits = hits_,
          .misses = misses_,
          .evictions = evictions_};
}

}  // namespace holdfast::engine
