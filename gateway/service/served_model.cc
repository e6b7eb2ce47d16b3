#include "gateway/service/served_model.h"

#include <utility>

#include "spdlog/spdlog.h"

namespace holdfast::gateway {

absl::StatusOr<std::shared_ptr<const ServedModel>> ServedModel::Create(
    TokenizerSpec spec, const std::string& name) {
  std::unique_ptr<templates::ChatTemplate> chat_template;
  if (spec.chat_template.empty()) {
    spdlog::warn("model {} has no chat template: chat requests are refused",
                 name);
  } else {
    auto compiled = templates::ChatTemplate::Create(
        spec.chat_template,
        {spec.bos_token, spec.eos_token, spec.pad_token, spec.unk_token});
    if (compiled.ok()) {
      chat_template = *std::move(compiled);
    } else {
      spdlog::error("model {}: chat requests are refused: {}", name,
                    std::string(compiled.status().message()));
    }
  }
  const std::string template_source = spec.chat_template;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) return tokenizer.status();
  std::shared_ptr<ServedModel> model(
      new ServedModel(*std::move(tokenizer), std::move(chat_template)));
  if (model->chat_template_ != nullptr) {
    model->marks_ = templates::MessageMarks::Learn(*model->chat_template_,
                                                   *model->tokenizer_);
    model->format_ =
        answer::LearnFormat(template_source, *model->chat_template_);
    spdlog::info("model {}: {}", name, answer::Describe(model->format_));
    if (!model->marks_.problem().empty())
      spdlog::warn("model {}: message marks: {}", name,
                   model->marks_.problem());
  }
  return model;
}

ServedModel::ServedModel(std::unique_ptr<Tokenizer> tokenizer,
                         std::unique_ptr<templates::ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      protector_(tokenizer_->added_texts()),
      cache_(
          std::make_unique<PromptCache>(*tokenizer_, PromptCache::Limits())) {}

openai::PromptParts ServedModel::parts() const {
  return {.chat_template = chat_template_.get(),
          .tokenizer = tokenizer_.get(),
          .marks = &marks_,
          .protector = &protector_,
          .cache = cache_.get(),
          .format = &format_};
}

}  // namespace holdfast::gateway
