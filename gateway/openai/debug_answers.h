// --debug-answers: what to make the model say, chosen by the messages, so that
// real clients can be driven through whole tool loops by a tiny model.
#ifndef HOLDFAST_GATEWAY_OPENAI_DEBUG_ANSWERS_H_
#define HOLDFAST_GATEWAY_OPENAI_DEBUG_ANSWERS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gateway/openai/request.h"

namespace holdfast::openai {

// Immutable once loaded; thread-safe.
class DebugAnswers {
 public:
  // A file of JSON lines, each an answer (a force value) and one or more
  // conditions, which must all hold:
  //   "pattern": a PCRE2 regex that is found in the last message's text;
  //   "first": one that is found in the first message's;
  //   "user": one that is found in the last user message's;
  //   "step": the number of assistant messages behind the last user message, so
  //     that each step of a tool loop has an answer of its own.
  // Empty lines are skipped. The error names the file and the line.
  static absl::StatusOr<std::unique_ptr<DebugAnswers>> Load(
      const std::string& path);
  static absl::StatusOr<std::unique_ptr<DebugAnswers>> Parse(
      std::string_view text, const std::string& name);
  virtual ~DebugAnswers() = default;

  // The answer of the first line whose conditions hold; null when there is
  // none. The pointer lives as long as this object. An error when a regex takes
  // too many steps on a text.
  virtual absl::StatusOr<const Force*> Find(
      const ChatRequest& request) const = 0;

 protected:
  DebugAnswers() = default;
};

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_DEBUG_ANSWERS_H_
