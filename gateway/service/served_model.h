// A model as requests need it: tokenizer, template and what goes with them.
#ifndef HOLDFAST_GATEWAY_SERVICE_SERVED_MODEL_H_
#define HOLDFAST_GATEWAY_SERVICE_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gateway/answer/answer_format.h"
#include "gateway/openai/prompt.h"
#include "gateway/template/chat_template.h"
#include "gateway/template/message_marks.h"
#include "gateway/tokenizer/prompt_cache.h"
#include "gateway/tokenizer/protect_specials.h"
#include "gateway/tokenizer/tokenizer.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway {

// Immutable but for the prompt cache, which locks for itself; any number of
// threads.
class ServedModel {
 public:
  // Takes about a second for a large vocabulary. A chat template that does not
  // compile is no error: completions need none. The log says so, and chat
  // requests are refused.
  static absl::StatusOr<std::shared_ptr<const ServedModel>> Create(
      TokenizerSpec spec, const std::string& name);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // How it writes the answers of chats.
  const answer::AnswerFormat& format() const { return format_; }
  // Valid while the model lives.
  openai::PromptParts parts() const;

 private:
  ServedModel(std::unique_ptr<Tokenizer> tokenizer,
              std::unique_ptr<templates::ChatTemplate> chat_template);

  const std::unique_ptr<const Tokenizer> tokenizer_;
  const std::unique_ptr<const templates::ChatTemplate> chat_template_;
  templates::MessageMarks marks_;
  answer::AnswerFormat format_;
  const SpecialProtector protector_;
  const std::unique_ptr<PromptCache> cache_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_SERVED_MODEL_H_
