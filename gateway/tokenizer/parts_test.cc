// The parts of the tokenizer by themselves.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gateway/tokenizer/added_tokens.h"
#include "gateway/tokenizer/bpe.h"
#include "gateway/tokenizer/byte_alphabet.h"
#include "gateway/tokenizer/byte_trie.h"
#include "gateway/tokenizer/nfc.h"
#include "gateway/tokenizer/pre_tokenizer.h"
#include "gateway/tokenizer/regex.h"
#include "gateway/tokenizer/regex_translate.h"
#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/text_cleaner.h"
#include "gateway/tokenizer/utf8.h"
#include "gateway/tokenizer/word_cache.h"

namespace holdfast::gateway {
namespace {

TEST(Utf8Test, EveryCharacterReadsBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    AppendUtf8(code, &text);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(ValidUtf8Bytes(text) == text.size(), !surrogate) << int(code);
    if (surrogate) continue;
    ASSERT_EQ(FirstCharacter(text).code, code);
    ASSERT_EQ(FirstCharacter(text).bytes, text.size());
    ASSERT_EQ(LastCharacter("\u0301" + text).code, code);
  }
}

TEST(ByteAlphabetTest, EveryByteReadsBack) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = TokenOfByte(static_cast<unsigned char>(byte));
    EXPECT_TRUE(seen.insert(token).second);
    EXPECT_EQ(BytesOfToken(token), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(TokenOfByte(' '), "\u0120");
  EXPECT_EQ(BytesOfToken("\u0120the\u010A"), " the\n");
  EXPECT_EQ(BytesOfToken("a b"), "a b");  // a space is outside the alphabet
  EXPECT_EQ(BytesOfToken("\u65E5\u0120"), "\u65E5\u0120");
}

TEST(ByteTrieTest, SaysWhatDecided) {
  ByteTrie trie;
  trie.Add("ab", 1);
  trie.Add("abcd", 2);
  const auto match = [&trie](const char* text) { return trie.MatchAt(text); };
  EXPECT_EQ(match("abx").value, 1u);
  EXPECT_EQ(match("abx").examined, 3u);
  EXPECT_EQ(match("abcx").value, 1u);
  EXPECT_EQ(match("abcx").examined, 4u);
  EXPECT_EQ(match("abcdx").value, 2u);
  EXPECT_EQ(match("abcdx").examined, 4u);  // nothing longer is there
  EXPECT_EQ(match("ab").examined, 3u);     // more than there is
  EXPECT_TRUE(match("ab").reached_end);
  EXPECT_TRUE(match("a").reached_end);
  EXPECT_FALSE(match("ax").reached_end);
  EXPECT_FALSE(match("xa").value);
  EXPECT_EQ(trie.NextCandidate("xxab", 0), 2u);
  EXPECT_EQ(trie.NextCandidate("xx", 0), 2u);
}

TEST(AddedTokensTest, NeedCoversWhatAnEarlierBeginningRead) {
  AddedTokens tokens;
  for (const AddedToken& token : {AddedToken{.id = 1, .content = "<a>"},
                                  AddedToken{.id = 2, .content = "x<a>yz"}}) {
    tokens.Add(token, token.content);
  }
  const auto parts = tokens.Cut("x<a>ya", 0, 0);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].id, 1u);
  EXPECT_EQ(parts[1].end, 4u);
  EXPECT_EQ(parts[1].need, 6u);  // with z at the end it would be token 2
  EXPECT_EQ(tokens.Cut("<a>", 0, 0)[0].need, 3u);
}

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, &out);
  return out;
}

TEST(NfcTest, ComposesAndOrders) {
  EXPECT_EQ(Nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(Nfc("a\u07FD\u0338"), "a\u07FD\u0338");  // not known to Unicode 9
}

// What IsNfcBoundary promises, against the whole Unicode table: such a
// character is no part of another's decomposition but its first, has no class
// and does not change.
TEST(NfcTest, BoundariesAreBoundaries) {
  std::set<char32_t> later;
  const auto decompose = [](char32_t code) {
    utf8proc_int32_t out[8];
    int last = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code), out, 8,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &last);
    return std::vector<char32_t>(out, out + count);
  };
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    const auto parts = decompose(code);
    later.insert(parts.begin() + 1, parts.end());
  }
  int boundaries = 0;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (!IsNfcBoundary(code)) continue;
    ++boundaries;
    const char32_t first = decompose(code)[0];
    const auto* property =
        utf8proc_get_property(static_cast<utf8proc_int32_t>(first));
    EXPECT_EQ(property->combining_class, 0) << std::hex << int(code);
    EXPECT_FALSE(later.contains(first)) << std::hex << int(code);
    std::string text;
    AppendUtf8(code, &text);
    EXPECT_EQ(Nfc(text), text) << std::hex << int(code);
  }
  EXPECT_GT(boundaries, 30'000);
}

TEST(CleanTextTest, RemovesSentinelsAndComposesAcrossThem) {
  const CleanText clean("a\uFDD0b e\uFDD0\u0301x", true, 0xFDD0);
  EXPECT_EQ(clean.text(), "ab \u00E9x");
  EXPECT_EQ(clean.RawPlace(0), std::nullopt);  // a could compose with b
  EXPECT_EQ(clean.RawPlace(2), 5u);            // before the space
  EXPECT_EQ(clean.RawPlace(5), 12u);           // before x
  EXPECT_EQ(clean.RawPlace(6), std::nullopt);  // the end
  const CleanText same("plain \u65E5", true, 0xFDD0);
  EXPECT_EQ(same.text(), "plain \u65E5");
  EXPECT_EQ(same.RawPlace(6), 6u);
}

std::string Translated(std::string_view pattern) {
  const auto result = TranslateRegex(pattern);
  return result.ok() ? *result : std::string(result.status().message());
}

TEST(TranslateRegexTest, KeepsWhatMeansTheSame) {
  for (const char* pattern :
       {"(?i:'s|'t)", " ?[a-z_]+\\r\\n", "a{2,3}|b{2}|c{4,}", "(?!x)y++",
        "(?<=a)b", "\\.\\[\\]", "[\\^\\]\\-]"}) {
    EXPECT_EQ(Translated(pattern), pattern);
  }
  EXPECT_EQ(Translated("a{,3}"), "a{0,3}");
  EXPECT_EQ(Translated("a{x"), "a\\{x");
  EXPECT_EQ(Translated("\\x41\\u00e9\\x{1F600}"), "\\x{41}\\x{00e9}\\x{1F600}");
  EXPECT_EQ(Translated("\\v"), "\\x{B}");
}

TEST(TranslateRegexTest, NamesWhatItDoesNotTranslate) {
  for (const char* pattern :
       {"^a",    "a$",      "[a&&b]",     "[[:alpha:]]", "[^\\P{L}]",
        "\\h",   "\\R",     "\\G",        "\\b",         "(?m:a)",
        "(?i)a", "(?<n>a)", "\\p{Latin}", "\\xff",       "a{2}+",
        "[a",    "\\",      "\\pL",       "\\x{}",       "[]a]"}) {
    EXPECT_NE(Translated(pattern).find("is not supported"), std::string::npos)
        << pattern << " -> " << Translated(pattern);
  }
}

// Whether a one-character pattern matches.
bool Matches(const Regex& regex, char32_t code) {
  std::string text;
  AppendUtf8(code, &text);
  RegexScratch scratch;
  const auto found = regex.Find(text, 0, false, scratch);
  EXPECT_TRUE(found.ok());
  return found->outcome == Regex::Outcome::kMatch;
}

TEST(RegexTest, ClassesAreThoseOfTheReference) {
  const Regex letter = *Regex::Compile(R"(\p{L})");
  const Regex no_letter = *Regex::Compile(R"([^\p{L}\p{N}\s])");
  const Regex not_letter = *Regex::Compile(R"(\P{L})");
  const Regex space = *Regex::Compile(R"(\s)");
  const Regex not_space = *Regex::Compile(R"([\S])");
  const Regex word = *Regex::Compile(R"(\w)");
  const Regex not_word = *Regex::Compile(R"(\W)");
  for (const char32_t code : {U'_', U'x', U'\u0301', U'\u2188', U'\u24D0',
                              U'\u00B2', U'7', U'\u203F'}) {
    EXPECT_TRUE(Matches(word, code)) << std::hex << int(code);
    EXPECT_FALSE(Matches(not_word, code)) << std::hex << int(code);
  }
  for (const char32_t code : {U'-', U'\u2074', U'\u2460', U' '}) {
    EXPECT_FALSE(Matches(word, code)) << std::hex << int(code);
  }
  EXPECT_TRUE(Matches(letter, 0x105C0));  // Unicode 16
  EXPECT_TRUE(Matches(letter, 0x31350));  // Unicode 15
  EXPECT_FALSE(Matches(no_letter, 0x31350));
  EXPECT_FALSE(Matches(not_letter, 0x31350));
  EXPECT_FALSE(Matches(no_letter, 0x1E4F0));  // a digit of Unicode 15
  EXPECT_FALSE(Matches(space, 0x180E));
  for (char32_t code = 0; code < 0x3100; ++code) {
    ASSERT_EQ(Matches(space, code), IsSpace(code)) << std::hex << int(code);
    ASSERT_EQ(Matches(not_space, code), !IsSpace(code));
  }
}

TEST(RegexTest, AnOpenTextIsAnsweredOnlyWhenCertain) {
  const Regex regex = *Regex::Compile(R"(\p{L}+|\s+(?!\S)|\s+|\p{N})");
  RegexScratch scratch;
  const auto outcome = [&](const char* text) {
    return regex.Find(text, 0, true, scratch)->outcome;
  };
  EXPECT_EQ(outcome("ab "), Regex::Outcome::kMatch);
  EXPECT_EQ(outcome("ab"), Regex::Outcome::kPartial);
  EXPECT_EQ(outcome("  "), Regex::Outcome::kPartial);
  EXPECT_EQ(outcome("  a"), Regex::Outcome::kMatch);
  EXPECT_EQ(outcome("1"), Regex::Outcome::kMatch);
  EXPECT_EQ(outcome("!"), Regex::Outcome::kNone);
}

TEST(RegexTest, TheMatchLimitIsAnError) {
  const Regex regex = *Regex::Compile("(?:a|aa)+(?:b|bb)+[cd]");
  RegexScratch scratch;
  const std::string text = std::string(60, 'a') + std::string(60, 'b');
  EXPECT_EQ(regex.Find(text, 0, false, scratch).status().code(),
            absl::StatusCode::kResourceExhausted);
}

std::vector<std::string> Pieces(const std::vector<PreTokenizerStep>& steps,
                                std::string_view text) {
  const auto pre = PreTokenizer::Create(steps);
  EXPECT_TRUE(pre.ok()) << pre.status();
  PreTokenizer::Pieces pieces;
  EXPECT_TRUE(pre->Split(text, false, pieces).ok());
  return {pieces.views.begin(), pieces.views.end()};
}

TEST(PreTokenizerTest, Steps) {
  using Kind = PreTokenizerStep::Kind;
  using Strings = std::vector<std::string>;
  const PreTokenizerStep individual{Kind::kDigitsIndividual, "", false};
  const PreTokenizerStep runs{Kind::kDigitsRuns, "", false};
  const PreTokenizerStep space{Kind::kAddPrefixSpace, "", false};
  const PreTokenizerStep commas{Kind::kSplitRegex, ",+", false};
  const PreTokenizerStep no_commas{Kind::kSplitRegex, ",+", true};
  EXPECT_EQ(Pieces({}, "a1"), (Strings{"a1"}));
  EXPECT_EQ(Pieces({individual}, "a12\u0663b"),
            (Strings{"a", "1", "2", "\u0663", "b"}));
  EXPECT_EQ(Pieces({runs}, "a12\u0663b"), (Strings{"a", "12\u0663", "b"}));
  EXPECT_EQ(Pieces({commas}, "a,,b,"), (Strings{"a", ",,", "b", ","}));
  EXPECT_EQ(Pieces({no_commas}, "a,,b,"), (Strings{"a", "b"}));
  EXPECT_EQ(Pieces({space, runs}, "a1"), (Strings{" a", "1"}));
  EXPECT_EQ(Pieces({runs, space}, "a1"), (Strings{" a", " 1"}));
  EXPECT_EQ(Pieces({runs, commas}, "1,2"), (Strings{"1", ",", "2"}));
  EXPECT_TRUE(PreTokenizer::Create({individual, commas})->resumable());
  EXPECT_FALSE(PreTokenizer::Create({commas, individual})->resumable());
  EXPECT_FALSE(PreTokenizer::Create({space, commas})->resumable());
}

TEST(WordCacheTest, KeepsShortWords) {
  WordCache cache;
  std::vector<std::uint32_t> ids;
  EXPECT_FALSE(cache.Find("word", &ids));
  cache.Put("word", std::vector<std::uint32_t>{7, 9});
  EXPECT_TRUE(cache.Find("word", &ids));
  EXPECT_EQ(ids, (std::vector<std::uint32_t>{7, 9}));
  const std::string longer(31, 'x');
  cache.Put(longer, std::vector<std::uint32_t>{1});
  EXPECT_FALSE(cache.Find(longer, &ids));
  cache.Put("many", std::vector<std::uint32_t>(9, 1));
  EXPECT_FALSE(cache.Find("many", &ids));
}

TEST(BpeTest, StopsInsideAPiece) {
  const auto bpe = Bpe::Create(testing::GoldenSpec("smollm_like"), {});
  ASSERT_TRUE(bpe.ok());
  Bpe::Scratch scratch;
  std::vector<std::uint32_t> ids;
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(bpe->Encode(std::string(100'000, 'a'), &stop, scratch, &ids));
}

TEST(BpeTest, BytesThatTheVocabularyLacksHaveNoIds) {
  TokenizerSpec spec = testing::GoldenSpec("smollm_like");
  EXPECT_GT(Bpe::Create(spec, {})->LeastIds("\x01\x01"), 0u);
  for (std::string& token : spec.tokens) {
    if (token == TokenOfByte(1)) token = "";
  }
  EXPECT_EQ(Bpe::Create(spec, {})->LeastIds("\x01\x01"), 0u);
}

}  // namespace
}  // namespace holdfast::gateway
