#include "gateway/tokenizer/prompt_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gateway/tokenizer/protect_specials.h"
#include "gateway/tokenizer/testing/golden.h"

namespace holdfast::gateway {
namespace {

using testing::GoldenSpec;
using testing::GoldenTokenizer;
using testing::RandomText;

constexpr char32_t kSentinel = 0xFDD0;

class PromptCacheTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = GoldenTokenizer(GetParam());
};

// A random place between two characters.
std::size_t RandomPlace(std::mt19937& random, const std::string& text) {
  std::size_t at =
      std::uniform_int_distribution<std::size_t>(0, text.size())(random);
  while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  return at;
}

TEST_P(PromptCacheTest, IncrementalEqualsWhole) {
  std::mt19937 random(23);
  std::size_t reused = 0;
  std::size_t all = 0;
  for (int conversation = 0; conversation < 40; ++conversation) {
    PromptCache cache(*tokenizer_, {.prompts = 3});
    const EncodeOptions options{
        .parse_added = conversation % 5 != 0,
        .sentinel = conversation % 2 == 0 ? kSentinel : 0};
    // Long texts without added tokens, and many short messages.
    const std::vector<std::string> look_alikes =
        conversation % 3 == 0 ? std::vector<std::string>{}
                              : tokenizer_->added_texts();
    std::string text;
    for (int turn = 0; turn < 30; ++turn) {
      const int kind = turn % 4;
      if (kind == 3) text.resize(RandomPlace(random, text));  // an edit
      if (kind == 2) {  // a change in the middle
        text.insert(RandomPlace(random, text), RandomText(random, 1, {}));
      }
      std::string more = RandomText(random, kind == 0 ? 200 : 3, look_alikes);
      if (options.sentinel != 0 && turn % 2 == 0) {
        more = ProtectSpecials(more, tokenizer_->added_texts(), kSentinel);
      }
      text += more;
      const auto whole = tokenizer_->Encode(text, options);
      const auto got = cache.Encode(text, options);
      ASSERT_TRUE(whole.ok() && got.ok());
      ASSERT_EQ(got->ids, *whole) << text;
      EXPECT_EQ(got->reused_bytes + got->encoded_bytes, text.size());
      reused += got->reused_bytes;
      all += text.size();
    }
  }
  EXPECT_GT(reused, all / 4);
}

// Every way to cut a text, so that the difference falls inside words, marks,
// line ends, runs of spaces and emoji.
TEST_P(PromptCacheTest, EveryCutOfATextGrowsRight) {
  std::mt19937 random(29);
  const std::string text =
      RandomText(random, 500, {}) + "naive\u0308 caf" + std::string(1500, ' ') +
      "x\r\n\r\n  \U0001F468\u200D\U0001F469 e" + std::string(1200, 'y') +
      "\u0301" + std::string(1100, '\n') + "z123";
  const std::vector<std::uint32_t> whole = *tokenizer_->Encode(text, {});
  for (std::size_t cut = 0; cut <= text.size(); cut += 1 + cut % 13) {
    if (cut < text.size() && (text[cut] & 0xC0) == 0x80) continue;
    PromptCache cache(*tokenizer_, {});
    ASSERT_TRUE(cache.Encode(text.substr(0, cut), {}).ok());
    const auto got = cache.Encode(text, {});
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(got->ids, whole) << cut;
  }
}

TEST_P(PromptCacheTest, ALongPromptThatGrewIsTokenizedAtItsEndOnly) {
  PromptCache cache(*tokenizer_, {});
  std::mt19937 random(31);
  std::string text;
  while (text.size() < 400'000) {
    text += "<|im_start|>user\n" + RandomText(random, 300, {}) + "<|im_end|>\n";
  }
  const std::size_t before = text.size();
  ASSERT_EQ(cache.Encode(text, {})->encoded_bytes, before);
  const std::string message = "<|im_start|>assistant\nfine<|im_end|>\n";
  text += message;
  const auto grown = cache.Encode(text, {});
  ASSERT_TRUE(grown.ok());
  // From the end of the last whole token before the end.
  EXPECT_EQ(grown->encoded_bytes, message.size() + 1);
  EXPECT_EQ(grown->ids, *tokenizer_->Encode(text, {}));
  // The same prompt again.
  EXPECT_LE(cache.Encode(text, {})->encoded_bytes, 1u);
}

INSTANTIATE_TEST_SUITE_P(All, PromptCacheTest,
                         ::testing::ValuesIn(testing::kGoldenTokenizers));

TEST(PromptCacheTest, TextWithoutTokensIsTakenUpBetweenWords) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {});
  std::mt19937 random(37);
  std::string text;
  while (text.size() < 400'000) text += RandomText(random, 100, {});
  ASSERT_TRUE(cache.Encode(text, {}).ok());
  text += " and more";
  const auto grown = cache.Encode(text, {});
  EXPECT_LT(grown->encoded_bytes, 10'000u);
  EXPECT_EQ(grown->ids, *tokenizer->Encode(text, {}));
}

TEST(PromptCacheTest, OtherOptionsShareNothing) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {});
  const std::string text = "<|im_start|>user\nhello<|im_end|>\n";
  ASSERT_TRUE(cache.Encode(text, {}).ok());
  EXPECT_GT(cache.Encode(text, {})->reused_bytes, 0u);
  const auto plain = cache.Encode(text, {.parse_added = false});
  EXPECT_EQ(plain->reused_bytes, 0u);
  EXPECT_EQ(plain->ids, *tokenizer->Encode(text, {.parse_added = false}));
}

TEST(PromptCacheTest, PatternsThatLookBehindAreTakenUpAtTokensOnly) {
  TokenizerSpec spec = GoldenSpec("qwen_like");
  spec.pre_tokenizer[0].pattern = R"((?<=a)b+|[^b]+|b+)";
  auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok());
  PromptCache cache(**tokenizer, {});
  std::string text = "<think>";
  for (int i = 0; i < 3000; ++i) text += "abbb c";
  ASSERT_TRUE(cache.Encode(text, {}).ok());
  text += "b";
  const auto grown = cache.Encode(text, {});
  EXPECT_EQ(grown->reused_bytes, 7u);
  EXPECT_EQ(grown->ids, *(*tokenizer)->Encode(text, {}));
}

TEST(PromptCacheTest, StaysWithinItsLimits) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {.prompts = 4, .bytes = 130'000});
  for (int i = 0; i < 20; ++i) {
    const std::string text =
        std::to_string(i) + "<|im_end|>" + std::string(10'000, 'a' + i);
    ASSERT_TRUE(cache.Encode(text, {}).ok());
    EXPECT_LE(cache.prompts(), 4u);
    EXPECT_LE(cache.bytes(), 130'000u);
  }
  EXPECT_GE(cache.prompts(), 2u);
  const std::size_t kept = cache.prompts();
  ASSERT_TRUE(cache.Encode(std::string(100'000, '!'), {}).ok());  // too large
  EXPECT_EQ(cache.prompts(), kept);
}

TEST(PromptCacheTest, TheLeastRecentPromptGoesFirst) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {.prompts = 2});
  const std::string a = "a<|im_end|>x";
  const std::string b = "b<|im_end|>x";
  const std::string c = "c<|im_end|>x";
  for (const std::string& text : {a, b, a, c}) {
    ASSERT_TRUE(cache.Encode(text, {}).ok());
  }
  EXPECT_GT(cache.Encode(a, {})->reused_bytes, 0u);
  EXPECT_EQ(cache.Encode(b, {})->reused_bytes, 0u);
}

TEST(PromptCacheTest, ErrorsNameTheByteOfTheWholeText) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {});
  const std::string text = "<|im_end|>abc";
  ASSERT_TRUE(cache.Encode(text, {}).ok());
  const auto bad = cache.Encode(text + "\xFF", {});
  EXPECT_NE(bad.status().ToString().find("byte 13"), std::string::npos);
  EXPECT_TRUE(cache.Encode(text, {}).ok());
}

TEST(PromptCacheTest, ServesManyThreads) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  PromptCache cache(*tokenizer, {.prompts = 3});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t % 2);
      std::string text;
      for (int turn = 0; turn < 30; ++turn) {
        text += RandomText(random, 20, tokenizer->added_texts());
        const auto got = cache.Encode(text, {});
        if (!got.ok() || got->ids != *tokenizer->Encode(text, {})) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace holdfast::gateway
