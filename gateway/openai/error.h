// Errors as OpenAI clients expect them, and the value-or-error type of request
// parsing. Pure values.
#ifndef HOLDFAST_GATEWAY_OPENAI_ERROR_H_
#define HOLDFAST_GATEWAY_OPENAI_ERROR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace holdfast::openai {

using Json = nlohmann::ordered_json;  // keeps the order of keys

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // the field, e.g. messages[2].content; empty: null
  std::string code;   // empty: null
  // Seconds for a Retry-After header.
  std::optional<std::uint32_t> retry_after_s;
  // Context overflow only.
  std::optional<std::uint64_t> n_prompt_tokens;
  std::optional<std::uint64_t> n_ctx;
};

// A value or the error to answer with. Access to the value of an error is a
// bug of ours (std::get throws).
template <typename T>
class [[nodiscard]] ApiOr {
 public:
  // Implicit on purpose: functions return either.
  ApiOr(T value) : state_(std::move(value)) {}
  ApiOr(ApiError error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  const ApiError& error() const { return std::get<1>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

// {"error":{"message","type","param","code"}}, context overflow with
// n_prompt_tokens and n_ctx besides. Also the data of an SSE error event.
Json ErrorJson(const ApiError& error);

// 400 on a field of the request.
ApiError FieldError(std::string param, std::string message);
// 400 on a field that is understood but not offered.
ApiError UnsupportedError(std::string param, std::string message);
// 400; the text holds the phrases by which clients know an overflow. `param` is
// what holds the prompt.
ApiError ContextOverflow(std::string param, std::uint64_t prompt_tokens,
                         std::uint64_t context_tokens);
// Where it was too long to be counted.
ApiError CertainOverflow(std::string param, std::uint64_t context_tokens);
ApiError Unauthorized();                           // 401
ApiError Forbidden(std::string message);           // 403
ApiError ForeignPage(std::string message);         // 403
ApiError ModelNotFound(const std::string& model);  // 404
ApiError PathNotFound(const std::string& path);    // 404
ApiError MethodNotAllowed(const std::string& method,
                          const std::string& path);               // 405
ApiError BodyTooLarge(std::size_t limit_bytes);                   // 413
ApiError CodingNotKnown(const std::string& coding);               // 415
ApiError QueueFull(std::string message, std::uint32_t retry_ms);  // 429
// 503: no engine, draining, or no blocks.
ApiError Unavailable(std::string message, std::uint32_t retry_ms);
ApiError InternalError(std::string message);  // 500
// InvalidArgument, OutOfRange and ResourceExhausted: 400; DeadlineExceeded and
// Unavailable: 503; the rest: 500. `param` names the field for a 400.
ApiError FromStatus(const absl::Status& status, std::string param);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_ERROR_H_
