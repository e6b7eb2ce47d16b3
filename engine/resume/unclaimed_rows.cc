#include "engine/resume/unclaimed_rows.h"

#include <algorithm>
#include <utility>

namespace holdfast::engine {
namespace {

std::size_t Shared(std::span<const KeyId> a, std::span<const KeyId> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

void UnclaimedRows::Add(const PrefixKey& root, std::vector<KeyId> ids) {
  all_.push_back({root, std::move(ids)});
}

int UnclaimedRows::Below(const PrefixKey& root, std::span<const KeyId> prompt,
                         int position) const {
  int most = 0;
  for (const Conversation& conversation : all_) {
    const auto end = static_cast<std::size_t>(position);
    if (conversation.root != root || end <= conversation.claimed ||
        Shared(conversation.ids, prompt) < end) {
      continue;
    }
    most = std::max(most, static_cast<int>(end - conversation.claimed));
  }
  return most;
}

void UnclaimedRows::Claim(const PrefixKey& root,
                          std::span<const KeyId> prompt) {
  std::erase_if(all_, [&](Conversation& conversation) {
    if (conversation.root != root) return false;
    conversation.claimed =
        std::max(conversation.claimed, Shared(conversation.ids, prompt));
    return conversation.claimed >= conversation.ids.size();
  });
}

}  // namespace holdfast::engine
