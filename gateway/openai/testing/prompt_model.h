// A model for tests of prompts.
#ifndef HOLDFAST_GATEWAY_OPENAI_TESTING_PROMPT_MODEL_H_
#define HOLDFAST_GATEWAY_OPENAI_TESTING_PROMPT_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/openai/json.h"
#include "gateway/openai/prompt.h"
#include "gateway/template/testing/byte_tokenizer.h"
#include "gateway/tokenizer/prompt_cache.h"
#include "gateway/tokenizer/protect_specials.h"
#include "gateway/tokenizer/tokenizer.h"
#include "gtest/gtest.h"

namespace holdfast::openai::testing {

// A model with a byte tokenizer and one of the test templates.
class Model {
 public:
  explicit Model(const std::string& source, TokenizerSpec spec = ChatMlSpec()) {
    auto tokenizer = gateway::Tokenizer::Create(std::move(spec));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto compiled = templates::ChatTemplate::Create(source, {});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    template_ = *std::move(compiled);
    format_ = answer::LearnFormat(source, *template_);
    marks_ = templates::MessageMarks::Learn(*template_, *tokenizer_);
    protector_ =
        std::make_unique<gateway::SpecialProtector>(tokenizer_->added_texts());
    cache_ = std::make_unique<gateway::PromptCache>(
        *tokenizer_, gateway::PromptCache::Limits{});
  }

  static TokenizerSpec ChatMlSpec() {
    return templates::testing::ByteTokenizerSpec(
        {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
         "</tool_call>", "<tool_response>", "</tool_response>"},
        "<|im_end|>");
  }

  PromptParts parts() const {
    return {template_.get(),  tokenizer_.get(), &marks_,
            protector_.get(), cache_.get(),     &format_};
  }
  const gateway::Tokenizer& tokenizer() const { return *tokenizer_; }
  const gateway::PromptCache& cache() const { return *cache_; }
  std::uint32_t Id(const char* text) const {
    return tokenizer_->FindAdded(text).value();
  }
  std::string Text(const std::vector<std::uint32_t>& ids) const {
    return tokenizer_->Decode(ids, false);
  }
  int Count(const std::vector<std::uint32_t>& ids, const char* text) const {
    return static_cast<int>(std::count(ids.begin(), ids.end(), Id(text)));
  }

 private:
  std::unique_ptr<gateway::Tokenizer> tokenizer_;
  std::unique_ptr<templates::ChatTemplate> template_;
  answer::AnswerFormat format_;
  templates::MessageMarks marks_;
  std::unique_ptr<gateway::SpecialProtector> protector_;
  std::unique_ptr<gateway::PromptCache> cache_;
};

inline ChatRequest Chat(const std::string& body) {
  const ApiOr<Json> json = ParseJson(body);
  EXPECT_TRUE(json.ok()) << json.error().message;
  ApiOr<ChatRequest> request = ParseChatRequest(*json, {"tiny", 1000, true});
  EXPECT_TRUE(request.ok()) << request.error().message;
  return *std::move(request);
}

}  // namespace holdfast::openai::testing

#endif  // HOLDFAST_GATEWAY_OPENAI_TESTING_PROMPT_MODEL_H_
