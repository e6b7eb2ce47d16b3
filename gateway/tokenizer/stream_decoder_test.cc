#include "gateway/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

using testing::GoldenTokenizer;

// The id of one byte.
std::uint32_t ByteId(const Tokenizer& tokenizer, unsigned char byte) {
  for (std::uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) == byte) {
      return id;
    }
  }
  ADD_FAILURE() << "no token for byte " << int{byte};
  return 0;
}

TEST(StreamDecoderTest, NeverGivesHalfACharacter) {
  const auto tokenizer = GoldenTokenizer("smollm_like");
  StreamDecoder decoder(*tokenizer, false);
  const std::string emoji = "\U0001F389";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(decoder.Append(ByteId(*tokenizer, emoji[i])), "");
  }
  EXPECT_EQ(decoder.Append(ByteId(*tokenizer, emoji[3])), emoji);
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoderTest, BrokenBytesAreReplacedOnceTheyAreCertain) {
  const auto tokenizer = GoldenTokenizer("smollm_like");
  const auto id = [&](unsigned char byte) { return ByteId(*tokenizer, byte); };
  StreamDecoder decoder(*tokenizer, false);
  EXPECT_EQ(decoder.Append(id(0x80)), "\uFFFD");  // begins nothing
  EXPECT_EQ(decoder.Append(id(0xE2)), "");
  EXPECT_EQ(decoder.Append(id(0x82)), "");
  EXPECT_EQ(decoder.Append(id('a')), "\uFFFDa");  // one for the beginning
  EXPECT_EQ(decoder.Append(id(0xED)), "");
  EXPECT_EQ(decoder.Append(id(0xA0)), "\uFFFD\uFFFD");  // a surrogate's
  EXPECT_EQ(decoder.Append(id(0xF0)), "");
  EXPECT_EQ(decoder.Append(id(0x9F)), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
  EXPECT_EQ(decoder.Append(id('b')), "b");
}

TEST(StreamDecoderTest, EqualsDecodingTheWhole) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  std::mt19937 random(5);
  std::uniform_int_distribution<std::uint32_t> any(
      0, static_cast<std::uint32_t>(tokenizer->vocab_size()));
  for (int round = 0; round < 500; ++round) {
    const bool skip = round % 2 == 0;
    std::vector<std::uint32_t> ids(30);
    for (std::uint32_t& id : ids) {
      id = round % 3 == 0 ? any(random) % 256 : any(random);
    }
    StreamDecoder decoder(*tokenizer, skip);
    std::string text;
    for (const std::uint32_t id : ids) {
      const std::string part = decoder.Append(id);
      EXPECT_EQ(ValidUtf8Bytes(part), part.size());
      text += part;
    }
    text += decoder.Flush();
    EXPECT_EQ(text, tokenizer->DecodeText(ids, skip));
  }
}

TEST(StreamDecoderTest, SpecialTokensAreLeftOutOnRequest) {
  const auto tokenizer = GoldenTokenizer("qwen_like");
  const std::uint32_t end = *tokenizer->FindAdded("<|im_end|>");
  StreamDecoder hidden(*tokenizer, true);
  StreamDecoder shown(*tokenizer, false);
  EXPECT_EQ(hidden.Append(end), "");
  EXPECT_EQ(shown.Append(end), "<|im_end|>");
}

}  // namespace
}  // namespace holdfast::gateway
