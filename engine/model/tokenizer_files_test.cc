#include "engine/model/tokenizer_files.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/bpe_vocabulary.h"
#include "engine/model/hf_folder.h"
#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_tokenizer.h"
#include "engine/model/testing/tiny_variants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = PreTokenizerStep::Kind;
using testing::GgufWriter;

bool Same(const AddedToken& a, const AddedToken& b) {
  return a.id == b.id && a.content == b.content && a.special == b.special &&
         a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
         a.normalized == b.normalized && a.single_word == b.single_word;
}

class TokenizerGgufTest : public ::testing::Test {
 protected:
  using More = std::function<void(GgufWriter*)>;

  // Tokens a, b, ab, <s>, <pad>; `pre` null leaves the key out.
  kernels::StatusOr<TokenizerSpec> Read(const char* pre, const More& more) {
    GgufWriter writer;
    writer.AddString("tokenizer.ggml.model", "gpt2");
    if (pre != nullptr) writer.AddString("tokenizer.ggml.pre", pre);
    writer.AddStrings("tokenizer.ggml.tokens",
                      std::vector<std::string>{"a", "b", "ab", "<s>", "<pad>"});
    more(&writer);
    EXPECT_TRUE(testing::WriteFile(path_, writer.Finish()).ok());
    const auto file = GgufFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return TokenizerFromGguf(*file);
  }
  std::string ErrorOf(const char* pre, const More& more) {
    const auto spec = Read(pre, more);
    return spec.ok() ? "" : spec.status().message();
  }
  static void Merges(GgufWriter* writer) {
    writer->AddStrings("tokenizer.ggml.merges",
                       std::vector<std::string>{"a b"});
  }

  testing::TempFolder folder_;
  std::string path_ = folder_.File("a.gguf");
};

TEST_F(TokenizerGgufTest, ReadsEveryPart) {
  const auto spec = Read("smollm", [](GgufWriter* writer) {
    Merges(writer);
    writer->AddInts("tokenizer.ggml.token_type",
                    std::vector<std::int32_t>{1, 1, 4, 3, 5});
    writer->AddU32("tokenizer.ggml.bos_token_id", 3);
    writer->AddU32("tokenizer.ggml.eos_token_id", 3);
    writer->AddU32("tokenizer.ggml.eot_token_id", 2);
    writer->AddU32("tokenizer.ggml.unknown_token_id", 0);
    writer->AddBool("tokenizer.ggml.add_bos_token", true);
    writer->AddString("tokenizer.chat_template", "{{ messages }}");
  });
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "ab", "<s>", ""));
  EXPECT_THAT(spec->merges, ElementsAre(0, 1, 2));
  ASSERT_EQ(spec->added_tokens.size(), 2u);
  EXPECT_EQ(spec->added_tokens[0].content, "ab");
  EXPECT_FALSE(spec->added_tokens[0].special);
  EXPECT_EQ(spec->added_tokens[1].content, "<s>");
  EXPECT_EQ(spec->added_tokens[1].id, 3u);
  EXPECT_TRUE(spec->added_tokens[1].special);
  EXPECT_EQ(spec->bos_id, 3u);
  EXPECT_EQ(spec->bos_token, "<s>");
  EXPECT_EQ(spec->eos_token, "<s>");
  EXPECT_EQ(spec->unk_token, "a");
  EXPECT_THAT(spec->eos_ids, ElementsAre(3, 2));
  EXPECT_TRUE(spec->add_bos);
  EXPECT_EQ(spec->chat_template, "{{ messages }}");
  ASSERT_EQ(spec->pre_tokenizer.size(), 2u);
  EXPECT_EQ(spec->pre_tokenizer[0].kind, Kind::kDigitsIndividual);
  EXPECT_EQ(spec->pre_tokenizer[1].pattern, kGpt2Pattern);
  EXPECT_FALSE(spec->nfc);
}

TEST_F(TokenizerGgufTest, NamesOfPreTokenizersDecide) {
  const auto bos = [](GgufWriter* writer) {
    Merges(writer);
    writer->AddU32("tokenizer.ggml.bos_token_id", 3);
  };
  const auto llama3 = Read("llama-bpe", bos);
  ASSERT_TRUE(llama3.ok()) << llama3.status().message();
  EXPECT_TRUE(llama3->ignore_merges);
  EXPECT_TRUE(llama3->add_bos);
  EXPECT_EQ(llama3->pre_tokenizer.at(0).pattern, kLlama3Pattern);
  const auto qwen2 = Read("qwen2", bos);
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().message();
  EXPECT_TRUE(qwen2->nfc);
  EXPECT_FALSE(qwen2->add_bos);
  EXPECT_EQ(qwen2->pre_tokenizer.at(0).pattern, kQwen2Pattern);
  EXPECT_THAT(ErrorOf("tekken", bos), HasSubstr("'tekken'"));
  EXPECT_THAT(ErrorOf("default", bos), HasSubstr("'default'"));
  EXPECT_THAT(ErrorOf(nullptr, bos), HasSubstr("tokenizer.ggml.pre"));
}

TEST_F(TokenizerGgufTest, NamesWhatIsBroken) {
  const auto with = [&](const More& more) {
    return ErrorOf("gpt-2", [&](GgufWriter* writer) {
      Merges(writer);
      more(writer);
    });
  };
  EXPECT_EQ(with([](GgufWriter*) {}), "");
  EXPECT_THAT(ErrorOf("gpt-2", [](GgufWriter*) {}),
              HasSubstr("tokenizer.ggml.merges is missing"));
  EXPECT_THAT(with([](GgufWriter* writer) {
                writer->AddU32("tokenizer.ggml.bos_token_id", 5);
              }),
              HasSubstr("bos_token_id is 5"));
  EXPECT_THAT(with([](GgufWriter* writer) {
                writer->AddBool("tokenizer.ggml.add_bos_token", true);
              }),
              HasSubstr("without tokenizer.ggml.bos_token_id"));
  EXPECT_THAT(with([](GgufWriter* writer) {
                writer->AddBool("tokenizer.ggml.add_space_prefix", true);
              }),
              HasSubstr("add_space_prefix"));
  EXPECT_THAT(with([](GgufWriter* writer) {
                writer->AddInts("tokenizer.ggml.token_type",
                                std::vector<std::int32_t>{1, 1});
              }),
              HasSubstr("2 entries for 5 tokens"));
  EXPECT_THAT(with([](GgufWriter* writer) {
                writer->AddInts("tokenizer.ggml.token_type",
                                std::vector<std::int32_t>{1, 1, 1, 6, 1});
              }),
              HasSubstr("token 3 is 6"));
  const auto merge = [&](const char* text) {
    return ErrorOf("gpt-2", [&](GgufWriter* writer) {
      writer->AddStrings("tokenizer.ggml.merges",
                         std::vector<std::string>{text});
    });
  };
  EXPECT_THAT(merge("b a"), HasSubstr("'ba' is not in the vocabulary"));
  EXPECT_THAT(merge("ab"), HasSubstr("not two words"));
  EXPECT_THAT(merge("a b c"), HasSubstr("not two words"));
}

// The generator writes the same tokenizer in both formats.
TEST(TokenizerFilesTest, BothFormatsGiveOneTokenizer) {
  testing::TempFolder folder;
  for (const char* variant :
       {"tiny-llama", "tiny-bytes", "tiny-qwen2", "tiny-qwen35"}) {
    SCOPED_TRACE(variant);
    const auto options = *testing::TinyVariant(variant);
    const std::string gguf_path = folder.File("a.gguf");
    const std::string hf_path = folder.File(variant);
    ASSERT_TRUE(testing::WriteTinyGguf(options, gguf_path).ok());
    ASSERT_TRUE(testing::WriteTinyFolder(options, hf_path).ok());
    const auto file = GgufFile::Open(gguf_path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto gguf = TokenizerFromGguf(*file);
    ASSERT_TRUE(gguf.ok()) << gguf.status().message();
    const auto hf_folder = ReadHfFolder(hf_path);
    ASSERT_TRUE(hf_folder.ok()) << hf_folder.status().message();
    const TokenizerSpec& hf = hf_folder->tokenizer;
    EXPECT_EQ(gguf->tokens, hf.tokens);
    EXPECT_EQ(gguf->merges, hf.merges);
    EXPECT_TRUE(std::equal(gguf->added_tokens.begin(), gguf->added_tokens.end(),
                           hf.added_tokens.begin(), hf.added_tokens.end(),
                           Same));
    EXPECT_EQ(gguf->nfc, hf.nfc);
    EXPECT_EQ(gguf->ignore_merges, hf.ignore_merges);
    EXPECT_EQ(gguf->bos_id, hf.bos_id);
    EXPECT_EQ(gguf->pad_id, hf.pad_id);
    EXPECT_EQ(gguf->eos_ids, hf.eos_ids);
    EXPECT_EQ(gguf->add_bos, hf.add_bos);
    EXPECT_EQ(gguf->chat_template, hf.chat_template);
    EXPECT_EQ(gguf->bos_token, hf.bos_token);
    EXPECT_EQ(gguf->eos_token, hf.eos_token);
    ASSERT_EQ(gguf->pre_tokenizer.size(), hf.pre_tokenizer.size());
    for (std::size_t i = 0; i < hf.pre_tokenizer.size(); ++i) {
      EXPECT_EQ(gguf->pre_tokenizer[i].kind, hf.pre_tokenizer[i].kind);
      EXPECT_EQ(gguf->pre_tokenizer[i].pattern, hf.pre_tokenizer[i].pattern);
      EXPECT_FALSE(hf.pre_tokenizer[i].removed);
    }
  }
}

TEST(TokenizerFilesTest, TheTinyTokenizerHasWholeWords) {
  const testing::TinyTokenizer tokenizer = testing::MakeTinyTokenizer(true);
  ASSERT_EQ(tokenizer.tokens.size(), 1024u);
  std::size_t longest = 0;
  for (std::size_t id = 0; id < 1017; ++id) {
    longest = std::max(longest, tokenizer.tokens[id].size());
  }
  EXPECT_GT(longest, 8u);
  EXPECT_EQ(tokenizer.tokens[tokenizer.turn_end], "<|im_end|>");
  EXPECT_EQ(testing::MakeTinyTokenizer(false).tokens.size(), 263u);
}

// A tokenizer.json with parts of it replaced.
class TokenizerJsonTest : public ::testing::Test {
 public:  // tests take pointers to the parts
  std::string Json() const {
    return R"({"added_tokens": )" + added_ + R"(, "normalizer": )" +
           normalizer_ + R"(, "pre_tokenizer": )" + pre_tokenizer_ +
           R"(, "post_processor": )" + post_processor_ + R"(, "decoder": )" +
           decoder_ + R"(, "truncation": )" + truncation_ + R"(, "model": )" +
           model_ + "}";
  }
  kernels::StatusOr<TokenizerSpec> Read() const {
    const auto document = JsonDocument::Parse(Json(), "tokenizer.json");
    EXPECT_TRUE(document.ok()) << document.status().message();
    return TokenizerFromJson(document->root(), "tokenizer.json");
  }
  std::string Error() const {
    const auto spec = Read();
    return spec.ok() ? "" : spec.status().message();
  }
  static std::string Sequence(const std::string& steps) {
    return R"({"type": "Sequence", "pretokenizers": [)" + steps + "]}";
  }

  std::string added_ = R"([{"id": 3, "content": "<s>", "special": true}])";
  std::string normalizer_ = "null";
  std::string pre_tokenizer_ =
      R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string post_processor_ = "null";
  std::string decoder_ = R"({"type": "ByteLevel"})";
  std::string truncation_ = "null";
  std::string model_ =
      R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
          "merges": ["a b"]})";
};

TEST_F(TokenizerJsonTest, ReadsByteLevelForms) {
  auto spec = Read();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "ab", "<s>"));
  EXPECT_THAT(spec->merges, ElementsAre(0, 1, 2));
  ASSERT_EQ(spec->pre_tokenizer.size(), 1u);
  EXPECT_EQ(spec->pre_tokenizer[0].pattern, kGpt2Pattern);
  EXPECT_FALSE(spec->add_bos);

  pre_tokenizer_ = R"({"type": "ByteLevel"})";  // the prefix is the default
  spec = Read();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  ASSERT_EQ(spec->pre_tokenizer.size(), 2u);
  EXPECT_EQ(spec->pre_tokenizer[0].kind, Kind::kAddPrefixSpace);

  pre_tokenizer_ = Sequence(
      R"({"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated"},
         {"type": "Split", "pattern": {"String": "a.b"},
          "behavior": "Removed", "invert": false},
         {"type": "Digits", "individual_digits": false},
         {"type": "ByteLevel", "add_prefix_space": false,
          "use_regex": false})");
  spec = Read();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  ASSERT_EQ(spec->pre_tokenizer.size(), 3u);
  EXPECT_EQ(spec->pre_tokenizer[0].pattern, "x+");
  EXPECT_FALSE(spec->pre_tokenizer[0].removed);
  EXPECT_EQ(spec->pre_tokenizer[1].pattern, "a\\.b");
  EXPECT_TRUE(spec->pre_tokenizer[1].removed);
  EXPECT_EQ(spec->pre_tokenizer[2].kind, Kind::kDigitsRuns);
}

TEST_F(TokenizerJsonTest, ReadsNormalizerMergesAndTemplate) {
  normalizer_ = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  model_ = R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]],
               "ignore_merges": true, "dropout": 0.0, "unk_token": null})";
  post_processor_ = R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "trim_offsets": false},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [3],
                                  "tokens": ["<s>"]}}}]})";
  const auto spec = Read();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_TRUE(spec->nfc);
  EXPECT_TRUE(spec->ignore_merges);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_EQ(spec->bos_id, 3u);
  EXPECT_EQ(spec->bos_token, "<s>");
}

TEST_F(TokenizerJsonTest, NamesWhatWouldChangeIds) {
  const auto error = [this](std::string TokenizerJsonTest::*part,
                            const std::string& value) {
    const std::string before = this->*part;
    this->*part = value;
    const std::string message = Error();
    this->*part = before;
    return message;
  };
  const auto pre = &TokenizerJsonTest::pre_tokenizer_;
  const auto post = &TokenizerJsonTest::post_processor_;
  const auto model = &TokenizerJsonTest::model_;
  const auto added = &TokenizerJsonTest::added_;
  EXPECT_EQ(Error(), "");
  EXPECT_THAT(error(&TokenizerJsonTest::normalizer_, R"({"type": "NFKC"})"),
              HasSubstr("normalizer 'NFKC'"));
  EXPECT_THAT(error(&TokenizerJsonTest::decoder_, R"({"type": "Metaspace"})"),
              HasSubstr("decoder 'Metaspace'"));
  EXPECT_THAT(error(&TokenizerJsonTest::truncation_, R"({"max_length": 512})"),
              HasSubstr("truncation"));
  EXPECT_THAT(error(pre, R"({"type": "Metaspace"})"), HasSubstr("ByteLevel"));
  EXPECT_THAT(error(pre, "null"), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(error(pre, Sequence(R"({"type": "Punctuation"},
                                     {"type": "ByteLevel"})")),
              HasSubstr("Punctuation"));
  EXPECT_THAT(error(pre, Sequence(R"({"type": "Digits"},
                                     {"type": "ByteLevel"})")),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(error(pre, Sequence(R"({"type": "Split", "behavior": "Isolated",
                                      "pattern": {"Regex": "x"},
                                      "invert": true},
                                     {"type": "ByteLevel"})")),
              HasSubstr("invert"));
  EXPECT_THAT(
      error(pre, Sequence(R"({"type": "Split", "pattern": {"Regex": "x"},
                              "behavior": "MergedWithPrevious"},
                             {"type": "ByteLevel"})")),
      HasSubstr("MergedWithPrevious"));
  EXPECT_THAT(error(post, R"({"type": "BertProcessing"})"),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(error(post, R"({"type": "TemplateProcessing", "single": [
                                 {"Sequence": {"id": "A"}},
                                 {"SpecialToken": {"id": "<s>"}}]})"),
              HasSubstr("post_processor.single"));
  EXPECT_THAT(error(model, R"({"type": "Unigram"})"), HasSubstr("Unigram"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": 0}, "merges": [],
                               "byte_fallback": true})"),
              HasSubstr("byte_fallback"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": 0}, "merges": [],
                               "continuing_subword_prefix": "##"})"),
              HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": 0}, "merges": [],
                               "unk_token": "a"})"),
              HasSubstr("unk_token"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": 0, "b": 0}, "merges": []})"),
              HasSubstr("id 0 is both 'a' and 'b'"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": -1}, "merges": []})"),
              HasSubstr("'a' has id -1"));
  EXPECT_THAT(error(model, R"({"vocab": {"a": 0}, "merges": ["a c"]})"),
              HasSubstr("'c' is not in the vocabulary"));
  EXPECT_THAT(error(added, R"([{"id": 4, "content": "ab"}])"),
              HasSubstr("'ab' has the ids 2 and 4"));
  EXPECT_THAT(error(added, R"([{"content": "x"}])"), HasSubstr("'x'"));
}

TEST_F(TokenizerJsonTest, ConfigAddsTokensTemplateAndEos) {
  const auto add = [&](const std::string& text, TokenizerSpec* spec) {
    const auto document = JsonDocument::Parse(text, "tokenizer_config.json");
    EXPECT_TRUE(document.ok()) << document.status().message();
    return AddTokenizerConfig(document->root(), "tokenizer_config.json", spec);
  };
  TokenizerSpec spec = *Read();
  const auto status = add(
      R"({"bos_token": {"content": "<s>"}, "eos_token": "<e>",
          "added_tokens_decoder": {
            "3": {"content": "<s>", "special": true},
            "5": {"content": "<e>", "special": true}},
          "chat_template": [{"name": "rag", "template": "no"},
                            {"name": "default", "template": "yes"}]})",
      &spec);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(spec.tokens, ElementsAre("a", "b", "ab", "<s>", "", "<e>"));
  ASSERT_EQ(spec.added_tokens.size(), 2u);
  EXPECT_EQ(spec.added_tokens[1].id, 5u);
  EXPECT_EQ(spec.bos_id, 3u);
  EXPECT_THAT(spec.eos_ids, ElementsAre(5));
  EXPECT_EQ(spec.chat_template, "yes");

  const auto eos = JsonDocument::Parse(R"({"eos_token_id": [5, 2]})", "x");
  ASSERT_TRUE(AddEosIds(eos->root(), "x", &spec).ok());
  EXPECT_THAT(spec.eos_ids, ElementsAre(5, 2));
  const auto wrong = JsonDocument::Parse(R"({"eos_token_id": 6})", "g.json");
  EXPECT_THAT(AddEosIds(wrong->root(), "g.json", &spec).message(),
              HasSubstr("g.json: eos_token_id"));

  EXPECT_THAT(add(R"({"bos_token": "<none>"})", &spec).message(),
              HasSubstr("bos_token '<none>'"));
  EXPECT_THAT(add(R"({"add_bos_token": true})", &spec).message(),
              HasSubstr("add_bos_token"));
  EXPECT_THAT(add(R"({"added_tokens_decoder": {"0": {"content": "z"}}})", &spec)
                  .message(),
              HasSubstr("'z' disagrees"));
  EXPECT_THAT(add(R"({"chat_template": []})", &spec).message(),
              HasSubstr("chat_template"));
}

TEST(ByteAlphabetTest, IsOneToOne) {
  const auto& alphabet = ByteAlphabet();
  ASSERT_EQ(alphabet.size(), 256u);
  EXPECT_EQ(alphabet['A'], "A");
  EXPECT_EQ(alphabet[' '], "\xc4\xa0");   // U+0120
  EXPECT_EQ(alphabet['\n'], "\xc4\x8a");  // U+010A
  EXPECT_EQ(alphabet[0xad], "\xc5\x83");  // U+0143
  EXPECT_EQ(alphabet[0xff], "\xc3\xbf");
  const auto ids = IndexTokens(alphabet, "alphabet");
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(ids->size(), 256u);
}

}  // namespace
}  // namespace holdfast::model
