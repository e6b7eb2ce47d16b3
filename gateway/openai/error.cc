#include "gateway/openai/error.h"

#include <algorithm>

#include "fmt/format.h"

namespace holdfast::openai {
namespace {

Json StringOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

ApiError WithCode(int http_status, std::string type, std::string code,
                  std::string message) {
  ApiError error;
  error.http_status = http_status;
  error.message = std::move(message);
  error.type = std::move(type);
  error.code = std::move(code);
  return error;
}

ApiError Overflow(std::string param, std::string_view prompt,
                  std::uint64_t prompt_tokens, std::uint64_t context_tokens) {
  ApiError error = WithCode(
      400, "invalid_request_error", "context_length_exceeded",
      fmt::format("{} tokens exceeds the available context size: this model's "
                  "maximum context length is {} tokens, of which the answer "
                  "needs at least one",
                  prompt, context_tokens));
  error.param = std::move(param);
  error.n_prompt_tokens = prompt_tokens;
  error.n_ctx = context_tokens;
  return error;
}

// Retry-After counts whole seconds.
std::uint32_t Seconds(std::uint32_t ms) {
  return std::max<std::uint32_t>(1, ms / 1000 + (ms % 1000 != 0 ? 1 : 0));
}

}  // namespace

Json ErrorJson(const ApiError& error) {
  Json body = {{"message", error.message},
               {"type", error.type},
               {"param", StringOrNull(error.param)},
               {"code", StringOrNull(error.code)}};
  if (error.n_prompt_tokens) body["n_prompt_tokens"] = *error.n_prompt_tokens;
  if (error.n_ctx) body["n_ctx"] = *error.n_ctx;
  return {{"error", std::move(body)}};
}

ApiError FieldError(std::string param, std::string message) {
  ApiError error;
  error.message = param.empty() ? std::move(message)
                                : fmt::format("{}: {}", param, message);
  error.param = std::move(param);
  return error;
}

ApiError UnsupportedError(std::string param, std::string message) {
  ApiError error = FieldError(std::move(param), std::move(message));
  error.code = "unsupported_value";
  return error;
}

ApiError ContextOverflow(std::string param, std::uint64_t prompt_tokens,
                         std::uint64_t context_tokens) {
  return Overflow(std::move(param),
                  fmt::format("the prompt of {}", prompt_tokens), prompt_tokens,
                  context_tokens);
}

ApiError CertainOverflow(std::string param, std::uint64_t context_tokens) {
  return Overflow(std::move(param),
                  fmt::format("the prompt of over {}", context_tokens),
                  context_tokens + 1, context_tokens);
}

ApiError Unauthorized() {
  return WithCode(401, "authentication_error", "invalid_api_key",
                  "Invalid API key");
}

ApiError Forbidden(std::string message) {
  return WithCode(403, "permission_error", "admin_only", std::move(message));
}

ApiError ForeignPage(std::string message) {
  return WithCode(403, "permission_error", "foreign_page", std::move(message));
}

ApiError ModelNotFound(const std::string& model) {
  ApiError error =
      WithCode(404, "invalid_request_error", "model_not_found",
               fmt::format("The model '{}' does not exist", model));
  error.param = "model";
  return error;
}

ApiError PathNotFound(const std::string& path) {
  return WithCode(404, "invalid_request_error", "not_found",
                  fmt::format("There is no {}", path));
}

ApiError MethodNotAllowed(const std::string& method, const std::string& path) {
  return WithCode(405, "invalid_request_error", "method_not_allowed",
                  fmt::format("{} does not take {}", path, method));
}

ApiError BodyTooLarge(std::size_t limit_bytes) {
  return WithCode(413, "invalid_request_error", "request_too_large",
                  fmt::format("the request body is over the limit of {} bytes",
                              limit_bytes));
}

ApiError CodingNotKnown(const std::string& coding) {
  return WithCode(415, "invalid_request_error", "unsupported_encoding",
                  fmt::format("bodies are read as they are sent: "
                              "content-encoding {} is not known",
                              coding));
}

ApiError QueueFull(std::string message, std::uint32_t retry_ms) {
  ApiError error =
      WithCode(429, "rate_limit_error", "queue_full", std::move(message));
  error.retry_after_s = Seconds(retry_ms);
  return error;
}

ApiError Unavailable(std::string message, std::uint32_t retry_ms) {
  ApiError error =
      WithCode(503, "server_error", "unavailable", std::move(message));
  error.retry_after_s = Seconds(retry_ms);
  return error;
}

ApiError InternalError(std::string message) {
  return WithCode(500, "server_error", "internal_error", std::move(message));
}

ApiError FromStatus(const absl::Status& status, std::string param) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kResourceExhausted:
      return FieldError(std::move(param), message);
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return Unavailable(message, 1000);
    default:
      return InternalError(message);
  }
}

}  // namespace holdfast::openai
