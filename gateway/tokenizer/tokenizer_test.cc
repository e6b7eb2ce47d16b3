#include "gateway/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

using testing::GoldenCase;
using testing::GoldenSpec;
using testing::GoldenTokenizer;
using testing::ReadCases;
using Ids = std::vector<std::uint32_t>;

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, EqualsHuggingFace) {
  const std::string name = GetParam();
  const auto tokenizer = GoldenTokenizer(name);
  const std::vector<GoldenCase> cases =
      ReadCases("tests/golden/tokenizer/" + name + ".cases.json");
  ASSERT_GT(cases.size(), 500u);
  for (int pass = 0; pass < 2; ++pass) {  // the second from the word cache
    for (const GoldenCase& one : cases) {
      const auto ids = tokenizer->Encode(one.text, {});
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, one.ids) << one.text;
      const auto plain = tokenizer->Encode(one.text, {.parse_added = false});
      ASSERT_TRUE(plain.ok()) << plain.status();
      EXPECT_EQ(*plain, one.plain) << one.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         ::testing::ValuesIn(testing::kGoldenTokenizers));

TEST(TokenizerTest, DecodesWhatItEncodes) {
  const auto tokenizer = GoldenTokenizer("smollm_like");  // no NFC, all bytes
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::string text =
        testing::RandomText(random, 20, tokenizer->added_texts());
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(tokenizer->Decode(*ids, false), text);
    EXPECT_EQ(tokenizer->DecodeText(*ids, false), text);
  }
}

TEST(TokenizerTest, KnowsItsAddedTokens) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  const auto end = tokenizer->FindAdded("<|im_end|>");
  const auto think = tokenizer->FindAdded("<think>");
  ASSERT_TRUE(end && think);
  EXPECT_TRUE(tokenizer->IsSpecial(*end));
  EXPECT_FALSE(tokenizer->IsSpecial(*think));
  EXPECT_TRUE(tokenizer->IsAdded(*think));
  EXPECT_FALSE(tokenizer->IsAdded(5));
  EXPECT_EQ(tokenizer->TokenBytes(*end), "<|im_end|>");
  EXPECT_FALSE(tokenizer->FindAdded("<|im_en"));
  EXPECT_EQ(tokenizer->Decode(Ids{*end, *think}, true), "<think>");
  EXPECT_EQ(tokenizer->Decode(Ids{*end, *think}, false), "<|im_end|><think>");
  const std::uint32_t past =
      static_cast<std::uint32_t>(tokenizer->vocab_size());
  EXPECT_EQ(tokenizer->TokenBytes(past), "");
  EXPECT_FALSE(tokenizer->IsSpecial(past));
  EXPECT_EQ(tokenizer->added_texts().size(),
            tokenizer->spec().added_tokens.size());
}

TEST(TokenizerTest, NamesTheByteThatIsNotUtf8) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  for (const std::string& tail :
       {std::string("\xFF"), std::string("\xC3"), std::string("\xED\xA0\x80"),
        std::string("\xC0\x80"), std::string("\xF4\x90\x80\x80")}) {
    const auto ids = tokenizer->Encode("caf\u00E9 12" + tail, {});
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(ids.status().ToString().find("at byte 8"), std::string::npos)
        << ids.status();
  }
}

TEST(TokenizerTest, StartsWithBosWhereAsked) {
  TokenizerSpec spec = GoldenSpec("smollm_like");
  auto without = Tokenizer::Create(spec);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ((*without)->Encode("a", {.add_bos = true}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  spec.bos_id = 1;
  spec.eos_ids = {2, 0};
  auto with = Tokenizer::Create(spec);
  ASSERT_TRUE(with.ok());
  EXPECT_EQ(*(*with)->Encode("", {.add_bos = true}), Ids{1});
  EXPECT_EQ((*with)->Encode("a", {.add_bos = true})->size(), 2u);
  EXPECT_TRUE((*with)->IsEos(0));
  EXPECT_FALSE((*with)->IsEos(1));
}

TEST(TokenizerTest, TakesWholeWordsWhereMergesAreIgnored) {
  TokenizerSpec spec = GoldenSpec("smollm_like");
  const auto id = static_cast<std::uint32_t>(spec.tokens.size());
  spec.tokens.push_back("zqzq");
  auto merged = Tokenizer::Create(spec);
  EXPECT_GT((*merged)->Encode("zqzq", {})->size(), 1u);
  spec.ignore_merges = true;
  auto whole = Tokenizer::Create(spec);
  EXPECT_EQ(*(*whole)->Encode("zqzq", {}), Ids{id});
  // An added token's text is never taken for a word.
  spec.added_tokens.push_back({.id = id, .content = "zqzq"});
  auto added = Tokenizer::Create(spec);
  EXPECT_EQ(*(*added)->Encode("zqzq", {}), Ids{id});
  EXPECT_GT((*added)->Encode("zqzq", {.parse_added = false})->size(), 1u);
}

TEST(TokenizerTest, DropsBytesThatTheVocabularyLacks) {
  TokenizerSpec spec = GoldenSpec("smollm_like");
  const auto tokenizer = Tokenizer::Create(spec);
  const Ids both = *(*tokenizer)->Encode("q\x01q", {});
  ASSERT_EQ(both.size(), 3u);
  spec.tokens[both[1]] = "";
  const auto lacking = Tokenizer::Create(spec);
  EXPECT_EQ(*(*lacking)->Encode("q\x01q", {}), (Ids{both[0], both[2]}));
}

TEST(TokenizerTest, LimitsRefuseOnlyWhatIsOverThem) {
  std::mt19937 random(7);
  for (const char* name : testing::kGoldenTokenizers) {
    const auto tokenizer = GoldenTokenizer(name);
    std::vector<std::string> texts = {std::string(5000, ' '),
                                      std::string(5000, 'a'),
                                      "e\u0301\u1FEF\u212A\u0327\u1FBE\u0308"};
    for (int i = 0; i < 40; ++i)
      texts.push_back(
          testing::RandomText(random, 60, tokenizer->added_texts()));
    for (const std::string& text : texts) {
      for (const bool parse : {true, false}) {
        const EncodeOptions options{.parse_added = parse};
        const Ids whole = *tokenizer->Encode(text, options);
        EncodeLimits limits;
        limits.most_ids = limits.most_piece_ids = whole.size();
        const auto within = tokenizer->Encode(text, options, limits);
        ASSERT_TRUE(within.ok()) << name << ": " << text;
        EXPECT_EQ(*within, whole);
        if (whole.empty()) continue;
        limits.most_ids = whole.size() - 1;
        EXPECT_EQ(tokenizer->Encode(text, options, limits).status().code(),
                  absl::StatusCode::kOutOfRange)
            << name << ": " << text;
      }
    }
    const std::atomic<bool> stop{true};
    EncodeLimits stopped;
    stopped.stop = &stop;
    EXPECT_EQ(tokenizer->Encode("one two", {}, stopped).status().code(),
              absl::StatusCode::kCancelled);
  }
}

TEST(TokenizerTest, PiecesAreNotMergedThatAreSurelyTooLong) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  EncodeLimits limits;
  limits.most_piece_ids = 8;
  EXPECT_TRUE(tokenizer->Encode("abc def ghi", {}, limits).ok());
  EXPECT_EQ(
      tokenizer->Encode(std::string(100'000, 'a'), {}, limits).status().code(),
      absl::StatusCode::kOutOfRange);
}

TEST(TokenizerTest, PrefixSpaceGoesBeforeEachText) {
  TokenizerSpec spec = GoldenSpec("smollm_like");
  const auto plain = Tokenizer::Create(spec);
  spec.pre_tokenizer.insert(spec.pre_tokenizer.begin(),
                            {.kind = PreTokenizerStep::Kind::kAddPrefixSpace,
                             .pattern = "",
                             .removed = false});
  const auto prefix = Tokenizer::Create(spec);
  EXPECT_EQ(*(*prefix)->Encode("the<|im_end|>river", {}),
            *(*plain)->Encode(" the<|im_end|> river", {}));
  EXPECT_EQ(*(*prefix)->Encode(" the", {}), *(*plain)->Encode(" the", {}));
}

TEST(TokenizerTest, RefusesWhatItCannotHonour) {
  const auto error = [](const auto& change) {
    TokenizerSpec spec = GoldenSpec("qwen_like");
    change(spec);
    return Tokenizer::Create(spec).status().ToString();
  };
  EXPECT_NE(error([](auto& s) { s.merges.pop_back(); }).find("multiple of 3"),
            std::string::npos);
  EXPECT_NE(error([](auto& s) { s.merges[4] = 1 << 30; }).find("merge 1 names"),
            std::string::npos);
  EXPECT_NE(error([](auto& s) {
              s.added_tokens[0].id = 0xFFFFFFF0;
            }).find("far past the vocabulary"),
            std::string::npos);
  EXPECT_NE(error([](auto& s) {
              s.added_tokens[0].content = "\xFF";
            }).find("not UTF-8"),
            std::string::npos);
  EXPECT_NE(
      error([](auto& s) { s.added_tokens[0].content = ""; }).find("is empty"),
      std::string::npos);
  EXPECT_NE(error([](auto& s) {
              s.pre_tokenizer[0].pattern = "(a";
            }).find("pattern \"(a\""),
            std::string::npos);
  EXPECT_NE(error([](auto& s) {
              s.pre_tokenizer[0].pattern = "a*";
            }).find("can match the empty text"),
            std::string::npos);
}

TEST(TokenizerTest, LongRunsAreNoTrouble) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  for (const char* unit : {"a", " ", "\n", "-", "\u0301", "ab", "e\u0301\u0316",
                           "\u0316\u0301", "\r\n ", "<|im_"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok()) << unit << ids.status();
    EXPECT_FALSE(ids->empty());
  }
}

TEST(TokenizerTest, ServesManyThreads) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  const std::vector<GoldenCase> cases =
      ReadCases("tests/golden/tokenizer/qwen_like.cases.json");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (const GoldenCase& one : cases) {
        wrong[t] += *tokenizer->Encode(one.text, {}) != one.ids ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace holdfast::gateway
