// A bound on how long a model thinks before it answers.
#ifndef HOLDFAST_ENGINE_OUTPUT_THINKING_BUDGET_H_
#define HOLDFAST_ENGINE_OUTPUT_THINKING_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engine {

// Thinking stands between two tags. When it has come to so many tokens, it is
// closed with words of the server's own, and the answer goes on from there.
struct ThinkingLimit {
  int tokens = 0;
  // The prompt ends in it; else the answer may begin with it.
  bool open = false;
  std::string open_tag;
  std::string close_tag;
  // Of their tokens, which may be special ones and have no text; -1: none.
  std::int32_t open_id = -1;
  std::int32_t close_id = -1;
  std::vector<std::int32_t> words;  // the last of them completes close_tag
};

// Follows one answer. A pure state machine over its tokens.
class ThinkingBudget {
 public:
  // Nothing: never acts.
  explicit ThinkingBudget(const std::optional<ThinkingLimit>& limit);

  // The id that must come next; nothing: the model's choice.
  std::optional<std::int32_t> Next() const;
  // All that must.
  std::span<const std::int32_t> Ahead() const;
  // The bytes of the token that came, chosen or not.
  void Token(std::string_view bytes);

 private:
  enum class State {
    kBefore,    // the open tag may come
    kThinking,  // within the limit
    kClosing,   // the words come
    kOff,
  };
  void Before();
  void Thinking(std::string_view bytes);

  const ThinkingLimit limit_;
  State state_ = State::kOff;
  int tokens_ = 0;         // of the thinking
  std::size_t words_ = 0;  // that came
  std::string text_;       // in which a tag may begin
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_OUTPUT_THINKING_BUDGET_H_
