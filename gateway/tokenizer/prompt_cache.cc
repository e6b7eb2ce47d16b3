#include "gateway/tokenizer/prompt_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast::gateway {
namespace {

std::size_t CommonBytes(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 4096;  // memcmp is many times faster
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t at = 0;
  while (at + kBlock <= most &&
         std::memcmp(a.data() + at, b.data() + at, kBlock) == 0) {
    at += kBlock;
  }
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

}  // namespace

std::size_t PromptCache::Entry::Bytes() const {
  return sizeof(Entry) + text.size() + ids.size() * sizeof(ids[0]) +
         checkpoints.size() * sizeof(checkpoints[0]);
}

absl::StatusOr<EncodedPrompt> PromptCache::Encode(std::string_view text,
                                                  const EncodeOptions& options,
                                                  const EncodeLimits& limits) {
  const Start start = FindStart(text, options);
  auto entry = std::make_shared<Entry>();
  entry->options = options;
  std::size_t begin = 0;
  std::size_t need = 0;
  if (start.checkpoints > 0) {
    const Entry& old = *start.entry;
    const Checkpoint& last = old.checkpoints[start.checkpoints - 1];
    begin = last.offset;
    need = last.need;
    entry->checkpoints.assign(
        old.checkpoints.begin(),
        old.checkpoints.begin() +
            static_cast<std::ptrdiff_t>(start.checkpoints));
    entry->ids.assign(old.ids.begin(),
                      old.ids.begin() + static_cast<std::ptrdiff_t>(last.ids));
  }
  const std::size_t kept = entry->checkpoints.size();
  const absl::Status status = tokenizer_.EncodeFrom(
      text, begin, options, &entry->ids, &entry->checkpoints, limits);
  if (!status.ok()) return status;
  // What was decided before `begin` needs its bytes at later checkpoints too.
  for (std::size_t i = kept; i < entry->checkpoints.size(); ++i) {
    need = std::max(need, entry->checkpoints[i].need);
    entry->checkpoints[i].need = need;
  }
  EncodedPrompt result{
      .ids = entry->ids,
      .reused_bytes = begin,
      .encoded_bytes = text.size() - begin,
  };
  entry->text = text;
  entry->ids.shrink_to_fit();
  entry->checkpoints.shrink_to_fit();
  Keep(std::move(entry), start);
  return result;
}

PromptCache::Start PromptCache::FindStart(std::string_view text,
                                          const EncodeOptions& options) {
  std::vector<std::shared_ptr<const Entry>> entries;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries.assign(entries_.begin(), entries_.end());
  }
  Start best;
  std::size_t best_offset = 0;
  for (const std::shared_ptr<const Entry>& entry : entries) {
    if (!(entry->options == options)) continue;
    const std::size_t common = CommonBytes(text, entry->text);
    const auto after = std::upper_bound(
        entry->checkpoints.begin(), entry->checkpoints.end(), common,
        [](std::size_t value, const Checkpoint& c) { return value < c.need; });
    const bool extends = common == entry->text.size();
    const std::size_t offset =
        after == entry->checkpoints.begin() ? 0 : std::prev(after)->offset;
    if (offset > best_offset || (best.entry == nullptr && extends)) {
      best = {entry,
              static_cast<std::size_t>(after - entry->checkpoints.begin()),
              extends};
      best_offset = offset;
    }
  }
  return best;
}

void PromptCache::Keep(std::shared_ptr<const Entry> entry, const Start& start) {
  const std::size_t size = entry->Bytes();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (start.entry != nullptr) {
    const auto old = std::find(entries_.begin(), entries_.end(), start.entry);
    if (old != entries_.end() && start.extends) {
      bytes_ -= (*old)->Bytes();
      entries_.erase(old);  // the new prompt holds all that it does
    } else if (old != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, old);
    }
  }
  if (size > limits_.bytes) return;
  entries_.push_front(std::move(entry));
  bytes_ += size;
  while (bytes_ > limits_.bytes || entries_.size() > limits_.prompts) {
    bytes_ -= entries_.back()->Bytes();
    entries_.pop_back();
  }
}

std::size_t PromptCache::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

std::size_t PromptCache::prompts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace holdfast::gateway
