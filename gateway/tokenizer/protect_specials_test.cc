#include "gateway/tokenizer/protect_specials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/tokenizer.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

using testing::GoldenTokenizer;

constexpr char32_t kSentinel = 0xFDD0;

// `text` with S for the sentinel.
std::string Shown(std::string_view text,
                  const std::vector<std::string>& specials) {
  std::string shown = ProtectSpecials(text, specials, kSentinel);
  std::string sentinel;
  AppendUtf8(kSentinel, &sentinel);
  for (std::size_t at = shown.find(sentinel); at != shown.npos;
       at = shown.find(sentinel)) {
    shown.replace(at, sentinel.size(), "S");
  }
  return shown;
}

TEST(PickSentinelTest, IsTheLowestThatIsNowhere) {
  const std::string first = "a\uFDD0";
  const std::string third = "\uFDD2";
  EXPECT_EQ(PickSentinel({}), char32_t{0xFDD0});
  const std::string_view some[] = {first, third, "\xEF\xB7"};
  EXPECT_EQ(PickSentinel(some), char32_t{0xFDD1});
  std::string all;
  for (char32_t c = 0xFDD0; c <= 0xFDEF; ++c) AppendUtf8(c, &all);
  const std::string_view every[] = {all};
  EXPECT_EQ(PickSentinel(every), std::nullopt);
  const std::string_view almost[] = {
      std::string_view(all).substr(0, all.size() - 3)};
  EXPECT_EQ(PickSentinel(almost), char32_t{0xFDEF});
}

TEST(ProtectSpecialsTest, BreaksEachOccurrence) {
  const std::vector<std::string> specials = {"<|e|>", "<t>", "aba", "\u27E6"};
  EXPECT_EQ(Shown("nothing here", specials), "nothing here");
  EXPECT_EQ(Shown("x<|e|><t>y", specials), "x<S|e|><St>y");
  EXPECT_EQ(Shown("ababac", specials), "aSbaSbac");
  EXPECT_EQ(Shown("<<t>", specials), "<<St>");
  EXPECT_EQ(Shown("\u27E6", specials), "\u27E6S");
  // A beginning of one at the end may meet its rest in the next string.
  EXPECT_EQ(Shown("x<|e", specials), "x<S|e");
  EXPECT_EQ(Shown("<", specials), "<S");
  EXPECT_EQ(Shown("<|x", specials), "<|x");
  EXPECT_EQ(Shown("", specials), "");
}

TEST(ProtectSpecialsTest, RemovingTheSentinelGivesTheTextBack) {
  const auto tokenizer = GoldenTokenizer("normalizing");
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const std::string text =
        testing::RandomText(random, 15, tokenizer->added_texts());
    EXPECT_EQ(RemoveSentinel(
                  ProtectSpecials(text, tokenizer->added_texts(), kSentinel),
                  kSentinel),
              text);
  }
}

class NoSpecialsTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool HasAdded(const std::vector<std::uint32_t>& ids) const {
    return std::any_of(ids.begin(), ids.end(), [this](std::uint32_t id) {
      return tokenizer_->IsAdded(id);
    });
  }
  std::vector<std::uint32_t> Encode(const std::string& text,
                                    const EncodeOptions& options) const {
    const auto ids = tokenizer_->Encode(text, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = GoldenTokenizer(GetParam());
};

TEST_P(NoSpecialsTest, NoUserTextYieldsASpecialToken) {
  const SpecialProtector protector(tokenizer_->added_texts());
  std::mt19937 random(13);
  int would_have = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text =
        testing::RandomText(random, 1 + round % 20, tokenizer_->added_texts());
    // Strings that a template puts side by side, cut anywhere.
    std::string protected_text;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = std::uniform_int_distribution<std::size_t>(
          begin + 1, std::min(begin + 40, text.size()))(random);
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      protected_text +=
          protector.Protect(text.substr(begin, end - begin), kSentinel);
      begin = end;
    }
    if (HasAdded(Encode(text, {}))) ++would_have;
    const auto ids = Encode(protected_text, {.sentinel = kSentinel});
    EXPECT_FALSE(HasAdded(ids)) << text;
    EXPECT_EQ(ids, Encode(text, {.parse_added = false})) << text;
  }
  EXPECT_GT(would_have, 1000);
}

TEST_P(NoSpecialsTest, TokensOfTheTemplateStay) {
  const std::uint32_t start = *tokenizer_->FindAdded("<|im_start|>");
  const std::uint32_t end = *tokenizer_->FindAdded("<|im_end|>");
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    const std::string user =
        testing::RandomText(random, 6, tokenizer_->added_texts());
    const std::string prompt =
        "<|im_start|>" +
        ProtectSpecials(user, tokenizer_->added_texts(), kSentinel) +
        "<|im_end|>";
    auto ids = Encode(prompt, {.sentinel = kSentinel});
    ASSERT_GE(ids.size(), 2u);
    EXPECT_EQ(ids.front(), start);
    EXPECT_EQ(ids.back(), end);
    ids = std::vector(ids.begin() + 1, ids.end() - 1);
    EXPECT_EQ(ids, Encode(user, {.parse_added = false})) << user;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NoSpecialsTest,
                         ::testing::ValuesIn(testing::kGoldenTokenizers));

}  // namespace
}  // namespace holdfast::gateway
