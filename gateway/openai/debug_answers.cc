#include "gateway/openai/debug_answers.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "gateway/openai/fields.h"
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

// A regex, compiled; as loaded, immutable.
struct Regex {
  std::string pattern;
  std::unique_ptr<pcre2_code, Free> code;
};

// Where a condition looks.
enum Place { kLast, kFirst, kUser, kPlaces };
constexpr std::array<const char*, kPlaces> kPlaceKeys = {"pattern", "first",
                                                         "user"};

struct Rule {
  std::array<std::optional<Regex>, kPlaces> conditions;
  std::optional<std::int64_t> step;
  Force answer;
};

// What conditions are held against.
struct Seen {
  std::array<const std::string*, kPlaces> texts = {};  // null: no such message
  std::int64_t step = 0;
};

Seen Look(const Json& messages) {
  Seen seen;
  const auto text = [](const Json& message) {
    return &message["content"].get_ref<const std::string&>();
  };
  seen.texts[kFirst] = text(messages.front());
  seen.texts[kLast] = text(messages.back());
  for (auto message = messages.rbegin(); message != messages.rend();
       ++message) {
    if ((*message)["role"] == "user") {
      seen.texts[kUser] = text(*message);
      break;
    }
    if ((*message)["role"] == "assistant") ++seen.step;
  }
  return seen;
}

absl::StatusOr<bool> Found(const Regex& regex, const std::string& text) {
  const std::unique_ptr<pcre2_match_context, Free> context(
      pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const std::unique_ptr<pcre2_match_data, Free> data(
      pcre2_match_data_create_from_pattern(regex.code.get(), nullptr));
  const int result = pcre2_match(regex.code.get(), Units(text), text.size(), 0,
                                 0, data.get(), context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return absl::ResourceExhaustedError(fmt::format(
      "debug answer pattern \"{}\": {}", regex.pattern, RegexMessage(result)));
}

absl::StatusOr<bool> Holds(const Rule& rule, const Seen& seen) {
  if (rule.step.has_value() && *rule.step != seen.step) return false;
  for (int place = 0; place < kPlaces; ++place) {
    if (!rule.conditions[place].has_value()) continue;
    if (seen.texts[place] == nullptr) return false;
    const auto found = Found(*rule.conditions[place], *seen.texts[place]);
    if (!found.ok() || !*found) return found;
  }
  return true;
}

class FileAnswers final : public DebugAnswers {
 public:
  explicit FileAnswers(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  absl::StatusOr<const Force*> Find(const ChatRequest& request) const override {
    if (request.messages.empty()) return nullptr;
    const Seen seen = Look(request.messages);
    for (const Rule& rule : rules_) {
      const auto holds = Holds(rule, seen);
      if (!holds.ok()) return holds.status();
      if (*holds) return &rule.answer;
    }
    return nullptr;
  }

 private:
  const std::vector<Rule> rules_;
};

absl::StatusOr<Regex> Compile(const std::string& key, const Json& value) {
  if (!value.is_string()) {
    return absl::InvalidArgumentError(
        fmt::format("{} must be a string, not {}", key, TypeName(value)));
  }
  Regex regex;
  regex.pattern = value.get<std::string>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex.code.reset(pcre2_compile(Units(regex.pattern), regex.pattern.size(),
                                 PCRE2_UTF, &error, &offset, nullptr));
  if (regex.code == nullptr) {
    return absl::InvalidArgumentError(fmt::format("{}, at its byte {}: {}", key,
                                                  offset, RegexMessage(error)));
  }
  return regex;
}

// One key of a line, but for its answer.
absl::Status ReadCondition(const std::string& key, const Json& value,
                           Rule* rule) {
  for (int place = 0; place < kPlaces; ++place) {
    if (key != kPlaceKeys[place]) continue;
    absl::StatusOr<Regex> regex = Compile(key, value);
    if (!regex.ok()) return regex.status();
    rule->conditions[place] = *std::move(regex);
    return absl::OkStatus();
  }
  if (key != "step") {
    return absl::InvalidArgumentError(
        fmt::format("there is no condition {}", key));
  }
  if (!value.is_number_unsigned()) {
    return absl::InvalidArgumentError("step must be a number of messages");
  }
  rule->step = value.get<std::int64_t>();
  return absl::OkStatus();
}

absl::StatusOr<Rule> ParseRule(std::string_view line) {
  const ApiOr<Json> json = ParseJson(line);
  if (!json.ok()) return absl::InvalidArgumentError(json.error().message);
  if (!json->is_object() || json->size() < 2 || !json->contains("answer")) {
    return absl::InvalidArgumentError(
        "must be an object of one or more conditions and an answer");
  }
  Rule rule;
  for (const auto& [key, value] : json->items()) {
    if (key == "answer") continue;
    if (absl::Status read = ReadCondition(key, value, &rule); !read.ok()) {
      return read;
    }
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
