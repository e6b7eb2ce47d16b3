// Chat templates, rendered by Jinja2 itself in an embedded CPython, set up as
// Hugging Face transformers does: a rendering that differs by one byte from
// the reference would miss every cache and shift the model off its training.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_CHAT_TEMPLATE_H_
#define HOLDFAST_GATEWAY_TEMPLATE_CHAT_TEMPLATE_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "shared/deadlines.h"

namespace holdfast::templates {

// Objects keep the order of their keys: templates print them (tojson).
using Json = nlohmann::ordered_json;

// What a template sees of the tokenizer.
struct SpecialTokens {
  std::string bos;
  std::string eos;
  std::string pad;
  std::string unk;
};

// A template and a request cannot take more than this from the process.
struct RenderLimits {
  std::chrono::milliseconds deadline = deadlines::kTemplateRender;
  std::size_t memory_bytes = std::size_t{512} << 20;  // of Python objects
  std::size_t output_bytes = std::size_t{64} << 20;
};

struct RenderInput {
  Json messages = Json::array();
  Json tools;      // an array, or null
  Json documents;  // an array, or null
  bool add_generation_prompt = true;
  // More variables (chat_template_kwargs), an object or null. They may replace
  // the special tokens' strings, but none of the fields above.
  Json kwargs;
};

// One compiled template. Thread-safe; renders of a process run one at a time,
// because they share an interpreter. The interpreter is started by the first
// Create and lives as long as the process. It reads no environment variable and
// no user's site folder, and imports from the folders that the build has found
// only.
class ChatTemplate {
 public:
  // InvalidArgument with Jinja's message and line when the source does not
  // compile or is empty; Internal when the interpreter does not start.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(
      const std::string& source, const SpecialTokens& tokens,
      const RenderLimits& limits = {});
  virtual ~ChatTemplate() = default;

  // InvalidArgument when the template refuses the input (raise_exception) or
  // fails on it; ResourceExhausted past a size; DeadlineExceeded past the
  // deadline, which covers the wait for other renders too. The message is fit
  // for the client.
  virtual absl::StatusOr<std::string> Render(
      const RenderInput& input) const = 0;

 protected:
  ChatTemplate() = default;
};

}  // namespace holdfast::templates

#endif  // HOLDFAST_GATEWAY_TEMPLATE_CHAT_TEMPLATE_H_
