#include "gateway/openai/debug_answers.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "gateway/openai/json.h"

namespace holdfast::openai {
namespace {

// Steps of one match; a pattern that needs more is a mistake.
constexpr std::uint32_t kMatchLimit = 10'000'000;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const {
    pcre2_match_context_free(context);
  }
};

std::string RegexMessage(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Units(const std::string& text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

struct Rule {
  std::string pattern;
  std::unique_ptr<pcre2_code, Free> code;
  Force answer;
};

class FileAnswers final : public DebugAnswers {
 public:
  explicit FileAnswers(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  absl::StatusOr<const Force*> Find(const ChatRequest& request) const override {
    if (request.messages.empty()) return nullptr;
    const auto& text =
        request.messages.back()["content"].get_ref<const std::string&>();
    const std::unique_ptr<pcre2_match_context, Free> context(
        pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(context.get(), kMatchLimit);
    for (const Rule& rule : rules_) {
      const std::unique_ptr<pcre2_match_data, Free> data(
          pcre2_match_data_create_from_pattern(rule.code.get(), nullptr));
      const int result = pcre2_match(rule.code.get(), Units(text), text.size(),
                                     0, 0, data.get(), context.get());
      if (result >= 0) return &rule.answer;
      if (result == PCRE2_ERROR_NOMATCH) continue;
      return absl::ResourceExhaustedError(
          fmt::format("debug answer pattern \"{}\": {}", rule.pattern,
                      RegexMessage(result)));
    }
    return nullptr;
  }

 private:
  const std::vector<Rule> rules_;
};

absl::StatusOr<Rule> ParseRule(std::string_view line) {
  const ApiOr<Json> json = ParseJson(line);
  if (!json.ok()) return absl::InvalidArgumentError(json.error().message);
  if (!json->is_object() || json->size() != 2 || !json->contains("pattern") ||
      !json->contains("answer") || !(*json)["pattern"].is_string()) {
    return absl::InvalidArgumentError(
        "must be an object of a pattern (a string) and an answer");
  }
  Rule rule;
  rule.pattern = (*json)["pattern"].get<std::string>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  rule.code.reset(pcre2_compile(Units(rule.pattern), rule.pattern.size(),
                                PCRE2_UTF, &error, &offset, nullptr));
  if (rule.code == nullptr) {
    return absl::InvalidArgumentError(fmt::format("pattern, at its byte {}: {}",
                                                  offset, RegexMessage(error)));
  }
  ApiOr<Force> answer = ParseForce((*json)["answer"], "answer");
  if (!answer.ok()) return absl::InvalidArgumentError(answer.error().message);
  rule.answer = std::move(*answer);
  return rule;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DebugAnswers>> DebugAnswers::Parse(
    std::string_view text, const std::string& name) {
  std::vector<Rule> rules;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::StatusOr<Rule> rule = ParseRule(line);
    if (!rule.ok()) {
      return absl::InvalidArgumentError(fmt::format(
          "{}:{}: {}", name, number, std::string(rule.status().message())));
    }
    rules.push_back(*std::move(rule));
  }
  return std::make_unique<FileAnswers>(std::move(rules));
}

absl::StatusOr<std::unique_ptr<DebugAnswers>> DebugAnswers::Load(
    const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char buffer[4096];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(
        fmt::format("debug answers {}: cannot be read", path));
  }
  return Parse(text, path);
}

}  // namespace holdfast::openai
