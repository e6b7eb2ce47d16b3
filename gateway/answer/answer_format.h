// How a model writes reasoning and tool calls, told by its chat template.
#ifndef HOLDFAST_GATEWAY_ANSWER_ANSWER_FORMAT_H_
#define HOLDFAST_GATEWAY_ANSWER_ANSWER_FORMAT_H_

#include <string>
#include <string_view>

#include "gateway/template/chat_template.h"

namespace holdfast::answer {

inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";

enum class CallSyntax {
  kNone,
  // <tool_call>{"name": "f", "arguments": {...}}</tool_call>
  kHermesJson,
  // <tool_call><function=f><parameter=p>text</parameter></function></tool_call>
  kQwenXml,
};

struct AnswerFormat {
  bool reasoning = false;  // <think>...</think> comes first
  CallSyntax calls = CallSyntax::kNone;
  // White space that the template writes beside the tags. Taking away exactly
  // this much gives back the model's tokens when the template prints the
  // parsed answer again.
  std::string after_think = "\n";
  std::string before_think_end = "\n";
  std::string after_think_end = "\n\n";
  std::string before_call = "\n";  // between text and a call
  // Shows the tools of a request to the model.
  bool shows_tools = true;
  // Prints a call whose arguments are text that is no JSON object.
  bool prints_text_arguments = true;
};

// The syntax is what the template's source speaks of: <function= is the XML
// form, <tool_call> alone the JSON one, </think> reasoning. The white space is
// what it prints in a probe conversation; the defaults above where that shows
// none (XML: "\n\n" before a call).
AnswerFormat LearnFormat(const std::string& source,
                         const templates::ChatTemplate& chat_template);

// "reasoning in <think>, tool calls as JSON": for the log.
std::string Describe(const AnswerFormat& format);

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_ANSWER_FORMAT_H_
