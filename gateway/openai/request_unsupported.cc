#include <algorithm>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "gateway/openai/json.h"
#include "gateway/openai/request_common.h"

namespace holdfast::openai {
namespace {

struct Unsupported {
  const char* field;
  // JSON values that change nothing, besides null; a space between two.
  const char* neutral;
  const char* message;
};

constexpr char kOtherSampling[] =
    "tokens are chosen by temperature, top_k, top_p and min_p";
constexpr char kConstrained[] = "constrained answers are not offered";
constexpr char kAnswerText[] =
    "answers are text, without stop strings and special tokens";
constexpr char kOtherForms[] = "answers have OpenAI's form";

constexpr Unsupported kUnsupported[] = {
    {"n", "1", "only one answer a request is offered"},
    {"best_of", "0 1", "only one answer a request is offered"},
    {"echo", "false", "prompts are not sent back"},
    {"suffix", "\"\"", "text is generated at the end of the prompt only"},
    {"functions", "[]", "functions are given as tools"},
    {"function_call", "\"none\" \"auto\"", "calls cannot be forced"},
    {"modalities", "[] [\"text\"]", "answers are text"},
    {"audio", "", "answers are text"},
    {"web_search_options", "", "there is no web search"},
    {"documents", "[]", "documents are not offered"},
    {"chat_template", "", "the model's own chat template is used"},
    {"add_generation_prompt", "true", "an answer is always opened"},
    {"continue_final_message", "false", "an answer is always opened"},
    {"guided_json", "", kConstrained},
    {"guided_regex", "", kConstrained},
    {"guided_choice", "", kConstrained},
    {"guided_grammar", "", kConstrained},
    {"structured_outputs", "", kConstrained},
    {"grammar", "\"\"", kConstrained},
    {"json_schema", "{}", kConstrained},
    {"regex", "\"\"", kConstrained},
    {"ebnf", "\"\"", kConstrained},
    {"structural_tag", "", kConstrained},
    {"allowed_token_ids", "[]", kConstrained},
    {"logits_processors", "[]", kConstrained},
    {"custom_logit_processor", "\"\"", kConstrained},
    {"lora", "[]", "one model is served, as it is"},
    {"include_stop_str_in_output", "false", kAnswerText},
    {"no_stop_trim", "false", kAnswerText},
    {"skip_special_tokens", "true", kAnswerText},
    {"return_token_ids", "false", kOtherForms},
    {"return_tokens_as_token_ids", "false", kOtherForms},
    {"prompt_logprobs", "false", "prompts get no log-probabilities"},
    {"min_tokens", "0", "answers have no least length"},
    {"stop_token_ids", "[]", "stop takes strings"},
    {"stop_regex", "[]", "stop takes strings"},
    {"bad_words", "[]", "words cannot be forbidden"},
    {"use_beam_search", "false", "beam search is not offered"},
    {"length_penalty", "1", "beam search is not offered"},
    {"typical_p", "1", kOtherSampling},
    {"tfs_z", "1", kOtherSampling},
    {"top_a", "0", kOtherSampling},
    {"top_n_sigma", "-1", kOtherSampling},
    {"mirostat", "0", kOtherSampling},
    {"dynatemp_range", "0", kOtherSampling},
    {"xtc_probability", "0", kOtherSampling},
    {"dry_multiplier", "0", kOtherSampling},
    {"epsilon_cutoff", "0", kOtherSampling},
    {"eta_cutoff", "0", kOtherSampling},
    {"no_repeat_ngram_size", "0", kOtherSampling},
    {"n_predict", "-1", "the field is max_tokens"},
    {"truncate_prompt_tokens", "-1", "prompts are not cut"},
};

// Split by hand: no neutral value has a space in itself.
bool IsNeutral(const Json& value, std::string_view neutral) {
  while (!neutral.empty()) {
    const std::size_t end = std::min(neutral.find(' '), neutral.size());
    if (value == Json::parse(neutral.substr(0, end))) return true;
    neutral.remove_prefix(std::min(end + 1, neutral.size()));
  }
  return false;
}

std::optional<ApiError> RefuseFormat(const Json& body) {
  const auto format = body.find("response_format");
  if (format == body.end() || format->is_null()) return std::nullopt;
  if (!format->is_object()) {
    return FieldError("response_format", "must be an object");
  }
  const auto type = format->find("type");
  if (type == format->end() || !type->is_string()) {
    return FieldError("response_format.type", "must be a string");
  }
  if (*type == "text") return std::nullopt;
  return UnsupportedError(
      "response_format",
      fmt::format("only the type text is offered, not {}", Dump(*type)));
}

std::optional<ApiError> RefuseToolChoice(const Json& body) {
  const auto choice = body.find("tool_choice");
  if (choice == body.end() || choice->is_null() || *choice == "auto" ||
      *choice == "none") {
    return std::nullopt;
  }
  return UnsupportedError(
      "tool_choice",
      "only \"auto\" and \"none\" are offered: a call cannot be "
      "forced");
}

}  // namespace

std::optional<ApiError> RefuseUnsupported(const Json& body) {
  for (const Unsupported& unsupported : kUnsupported) {
    const auto value = body.find(unsupported.field);
    if (value == body.end() || value->is_null()) continue;
    if (IsNeutral(*value, unsupported.neutral)) continue;
    return UnsupportedError(
        unsupported.field,
        fmt::format("not supported: {}", unsupported.message));
  }
  if (auto error = RefuseFormat(body)) return error;
  return RefuseToolChoice(body);
}

}  // namespace holdfast::openai
