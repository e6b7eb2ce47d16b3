#include "engine/model/testing/tiny_tokenizer.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "engine/model/bpe_vocabulary.h"

namespace holdfast::model::testing {
namespace {

constexpr std::size_t kVocabulary = 1024;
constexpr std::string_view kSpecials[] = {"<|endoftext|>", "<|im_start|>",
                                          "<|im_end|>"};
constexpr std::string_view kMarkers[] = {"<think>", "</think>", "<tool_call>",
                                         "</tool_call>"};
constexpr std::size_t kAddedTokens = std::size(kSpecials) + std::size(kMarkers);

enum class CharClass { kLetter, kDigit, kNewline, kSpace, kOther };

CharClass ClassOf(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
    return CharClass::kLetter;
  }
  if (c >= '0' && c <= '9') return CharClass::kDigit;
  if (c == '\n') return CharClass::kNewline;
  return c == ' ' ? CharClass::kSpace : CharClass::kOther;
}

// A word as token ids, and how often the text has it.
using Word = std::vector<std::uint32_t>;
using Words = std::map<Word, int>;

// Runs of one class, a single space before a run joined to it; digits alone.
Words SplitText(std::string_view text) {
  Words words;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = at;
    if (text[at] == ' ' && at + 1 < text.size()) {
      const CharClass next = ClassOf(text[at + 1]);
      if (next == CharClass::kLetter || next == CharClass::kOther) ++end;
    }
    const CharClass run = ClassOf(text[end]);
    do {
      ++end;
    } while (end < text.size() && run != CharClass::kDigit &&
             ClassOf(text[end]) == run);
    // The last space of a run belongs to what follows it.
    if (run == CharClass::kSpace && end - at > 1 && end < text.size()) --end;
    Word word;
    for (char c : text.substr(at, end - at)) {
      word.push_back(static_cast<unsigned char>(c));
    }
    ++words[word];
    at = end;
  }
  return words;
}

using Pair = std::pair<std::uint32_t, std::uint32_t>;

// The commonest pair; of equals the one with the lower ids.
Pair CommonestPair(const Words& words) {
  std::map<Pair, int> counts;
  for (const auto& [word, count] : words) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      counts[{word[i - 1], word[i]}] += count;
    }
  }
  Pair best = {0, 0};
  int most = 0;
  for (const auto& [pair, count] : counts) {
    if (count > most) {
      best = pair;
      most = count;
    }
  }
  return best;
}

Words Merge(const Words& words, Pair pair, std::uint32_t merged) {
  Words result;
  for (const auto& [word, count] : words) {
    Word shorter;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (i + 1 < word.size() && word[i] == pair.first &&
          word[i + 1] == pair.second) {
        shorter.push_back(merged);
        ++i;
      } else {
        shorter.push_back(word[i]);
      }
    }
    result[std::move(shorter)] += count;
  }
  return result;
}

void Train(TinyTokenizer* tokenizer) {
  Words words = SplitText(kTinyTrainingText);
  std::map<std::string, std::uint32_t> ids;
  std::vector<std::string>& tokens = tokenizer->tokens;
  while (tokens.size() < kVocabulary - kAddedTokens) {
    const Pair pair = CommonestPair(words);
    const std::string text = tokens[pair.first] + tokens[pair.second];
    tokenizer->merges.emplace_back(tokens[pair.first], tokens[pair.second]);
    // Two merges may make the same text; it is one token.
    const auto [at, added] =
        ids.try_emplace(text, static_cast<std::uint32_t>(tokens.size()));
    if (added) tokens.push_back(text);
    words = Merge(words, pair, at->second);
  }
}

TinyTokenizer Make(bool with_merges) {
  TinyTokenizer tokenizer;
  tokenizer.tokens = ByteAlphabet();
  if (with_merges) Train(&tokenizer);
  const auto add = [&](std::string_view text, bool special) {
    const auto id = static_cast<std::uint32_t>(tokenizer.tokens.size());
    tokenizer.tokens.emplace_back(text);
    tokenizer.added.push_back({id, special});
    return id;
  };
  tokenizer.end_of_text = add(kSpecials[0], true);
  add(kSpecials[1], true);
  tokenizer.turn_end = add(kSpecials[2], true);
  for (std::string_view text : kMarkers) add(text, false);
  return tokenizer;
}

}  // namespace

TinyTokenizer MakeTinyTokenizer(bool with_merges) {
  // Training takes a while, and tests make many models.
  static const auto& trained = *new TinyTokenizer(Make(true));
  return with_merges ? trained : Make(false);
}

}  // namespace holdfast::model::testing
