#include "engine/output/thinking_budget.h"

#include <algorithm>

namespace holdfast::engine {

ThinkingBudget::ThinkingBudget(const std::optional<ThinkingLimit>& limit)
    : limit_(limit.value_or(ThinkingLimit())) {
  if (!limit) return;
  state_ = limit->open ? State::kThinking : State::kBefore;
  if (limit->open && limit->tokens == 0) state_ = State::kClosing;
}

std::optional<std::int32_t> ThinkingBudget::Next() const {
  if (state_ != State::kClosing) return std::nullopt;
  return limit_.words[words_];
}

std::span<const std::int32_t> ThinkingBudget::Ahead() const {
  if (state_ != State::kClosing) return {};
  return std::span(limit_.words).subspan(words_);
}

void ThinkingBudget::Token(std::string_view bytes) {
  switch (state_) {
    case State::kBefore:
      text_ += bytes;
      return Before();
    case State::kThinking:
      return Thinking(bytes);
    case State::kClosing:
      if (++words_ == limit_.words.size()) state_ = State::kOff;
      return;
    case State::kOff:
      return;
  }
}

// Thinking comes first, behind white space at most.
void ThinkingBudget::Before() {
  const std::size_t at = text_.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) return;
  const std::string_view text = std::string_view(text_).substr(at);
  if (text.starts_with(limit_.open_tag)) {
    text_.clear();
    state_ = limit_.tokens == 0 ? State::kClosing : State::kThinking;
  } else if (!limit_.open_tag.starts_with(text)) {
    state_ = State::kOff;
  }
}

void ThinkingBudget::Thinking(std::string_view bytes) {
  text_ += bytes;
  if (text_.find(limit_.close_tag) != std::string::npos) {
    state_ = State::kOff;
    return;
  }
  const std::size_t kept = std::min(text_.size(), limit_.close_tag.size() - 1);
  text_.erase(0, text_.size() - kept);
  if (++tokens_ >= limit_.tokens) state_ = State::kClosing;
}

}  // namespace holdfast::engine
