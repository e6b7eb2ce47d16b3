#include "shared/align/match_text.h"

#include <set>
#include <string_view>

namespace holdfast::align {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The client's positions that text up to some point of the sent one can reach.
// White space in a gap may have any length, and what follows it may begin with
// white space too, so there can be several.
class Reach {
 public:
  explicit Reach(std::string_view client) : client_(client) {}

  void Fixed(std::string_view text) {
    std::set<std::size_t> next;
    for (const std::size_t at : positions_) {
      if (client_.substr(at).starts_with(text)) next.insert(at + text.size());
    }
    positions_ = std::move(next);
  }
  void Gap() {
    std::set<std::size_t> next;
    for (std::size_t at : positions_) {
      // A position met before has had its white space followed to the end.
      while (next.insert(at).second && at < client_.size() &&
             IsSpace(client_[at])) {
        ++at;
      }
    }
    positions_ = std::move(next);
  }
  bool AtEnd() const { return positions_.contains(client_.size()); }

 private:
  const std::string_view client_;
  std::set<std::size_t> positions_{0};
};

// `end`: how much of the sent text counts.
bool Matches(const SentText& sent, std::size_t end, std::string_view client) {
  Reach reach(client);
  const std::string_view text = std::string_view(sent.text).substr(0, end);
  std::size_t at = 0;
  for (const SentText::Gap& gap : sent.gaps) {
    if (gap.begin < at || gap.end < gap.begin || gap.end > end) break;
    reach.Fixed(text.substr(at, gap.begin - at));
    reach.Gap();
    at = gap.end;
  }
  reach.Fixed(text.substr(at));
  return reach.AtEnd();
}

}  // namespace

TextMatch MatchText(const SentText& sent, std::string_view client) {
  const std::string_view text = sent.text;
  if (client == text) return {.equal = true};
  if (Matches(sent, text.size(), client)) {
    return {.equal = true, .white_space = true};
  }
  if (client.ends_with('\n')) {
    const std::string_view shorter = client.substr(0, client.size() - 1);
    if (Matches(sent, text.size(), shorter)) {
      return {.equal = true, .white_space = shorter != text, .newline = true};
    }
  }
  if (text.ends_with('\n') && Matches(sent, text.size() - 1, client)) {
    return {.equal = true,
            .white_space = client != text.substr(0, text.size() - 1),
            .newline = true};
  }
  return {};
}

}  // namespace holdfast::align
