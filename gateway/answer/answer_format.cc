#include "gateway/answer/answer_format.h"

#include <optional>

#include "fmt/format.h"

namespace holdfast::answer {
namespace {

using templates::Json;

constexpr char kReasoningText[] = "probe-reasoning";
constexpr char kContentText[] = "probe-content";
constexpr std::size_t kMostSpace = 4;

templates::RenderInput Conversation(Json arguments) {
  templates::RenderInput input;
  input.messages.push_back({{"role", "user"}, {"content", "probe-user"}});
  Json call = {{"id", "call00001"}, {"type", "function"}};
  call["function"] = {{"name", "probe_function"},
                      {"arguments", std::move(arguments)}};
  input.messages.push_back({{"role", "assistant"},
                            {"content", kContentText},
                            {"reasoning_content", kReasoningText},
                            {"tool_calls", Json::array({std::move(call)})}});
  input.add_generation_prompt = false;
  return input;
}

// A template that refuses tools by itself says so in better words than ours.
bool ShowsTools(const templates::ChatTemplate& chat_template) {
  templates::RenderInput input;
  input.messages.push_back({{"role", "user"}, {"content", "probe-user"}});
  const auto without = chat_template.Render(input);
  Json function = {{"name", "probe_function"}, {"description", "probe"}};
  function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  input.tools =
      Json::array({{{"type", "function"}, {"function", std::move(function)}}});
  const auto with = chat_template.Render(input);
  return !without.ok() || !with.ok() || *with != *without;
}

// The text from `begin` to `end` where that is a little white space.
void TakeSpace(std::string_view text, std::size_t begin, std::size_t end,
               std::string* space) {
  if (begin == std::string_view::npos || end == std::string_view::npos ||
      begin > end || end - begin > kMostSpace) {
    return;
  }
  const std::string_view between = text.substr(begin, end - begin);
  if (between.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    *space = between;
  }
}

void LearnSpace(std::string_view text, AnswerFormat* format) {
  const auto behind = [text](std::string_view what, std::size_t from) {
    const std::size_t at = text.find(what, from);
    return at == std::string_view::npos ? at : at + what.size();
  };
  const std::size_t content = text.find(kContentText);
  const std::size_t reasoning = text.find(kReasoningText);
  if (content == std::string_view::npos) return;
  if (reasoning != std::string_view::npos && reasoning < content) {
    const std::size_t open = text.rfind(kThink, reasoning);
    if (open != std::string_view::npos) {
      TakeSpace(text, open + kThink.size(), reasoning, &format->after_think);
    }
    const std::size_t reasoning_end = behind(kReasoningText, reasoning);
    TakeSpace(text, reasoning_end, text.find(kThinkEnd, reasoning),
              &format->before_think_end);
    TakeSpace(text, behind(kThinkEnd, reasoning), content,
              &format->after_think_end);
  }
  TakeSpace(text, behind(kContentText, content), text.find(kToolCall, content),
            &format->before_call);
}

}  // namespace

AnswerFormat LearnFormat(const std::string& source,
                         const templates::ChatTemplate& chat_template) {
  AnswerFormat format;
  format.reasoning = source.find(kThinkEnd) != std::string::npos;
  if (source.find(kToolCall) != std::string::npos) {
    format.calls = source.find("<function=") != std::string::npos
                       ? CallSyntax::kQwenXml
                       : CallSyntax::kHermesJson;
  }
  if (format.calls == CallSyntax::kQwenXml) format.before_call = "\n\n";
  format.shows_tools = ShowsTools(chat_template);
  const auto text =
      chat_template.Render(Conversation({{"probe_name", "probe-value"}}));
  if (!text.ok()) return format;
  LearnSpace(*text, &format);
  format.prints_text_arguments =
      chat_template.Render(Conversation("probe-text")).ok();
  return format;
}

std::string Describe(const AnswerFormat& format) {
  const char* calls = "none";
  if (format.calls == CallSyntax::kHermesJson) calls = "JSON";
  if (format.calls == CallSyntax::kQwenXml) calls = "XML";
  return fmt::format("reasoning: {}, tool calls: {}{}",
                     format.reasoning ? "<think>" : "none", calls,
                     format.shows_tools ? "" : ", tools: not shown");
}

}  // namespace holdfast::answer
