#include "gateway/tokenizer/word_cache.h"

#include <algorithm>
#include <functional>

namespace holdfast::gateway {

WordCache::WordCache() : slots_(kSlots) {}

std::size_t WordCache::SlotOf(std::string_view word) {
  return std::hash<std::string_view>()(word) % kSlots;
}

bool WordCache::Find(std::string_view word,
                     std::vector<std::uint32_t>* ids) const {
  const std::size_t index = SlotOf(word);
  const std::lock_guard<std::mutex> lock(MutexOf(index));
  const Slot& slot = slots_[index];
  if (slot.count == 0 ||
      std::string_view(slot.word.data(), slot.bytes) != word) {
    return false;
  }
  ids->insert(ids->end(), slot.ids.begin(), slot.ids.begin() + slot.count);
  return true;
}

void WordCache::Put(std::string_view word, std::span<const std::uint32_t> ids) {
  const std::size_t index = SlotOf(word);
  const std::lock_guard<std::mutex> lock(MutexOf(index));
  Slot& slot = slots_[index];
  if (word.size() > slot.word.size() || ids.size() > slot.ids.size()) return;
  slot.bytes = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace holdfast::gateway
