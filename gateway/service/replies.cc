#include "gateway/service/replies.h"

#include <utility>

#include "gateway/openai/json.h"

namespace holdfast::gateway {

namespace asio = boost::asio;

http::Response JsonResponse(int status, const openai::Json& body) {
  http::Response response;
  response.status = status;
  response.body = openai::Dump(body);
  return response;
}

http::Response ErrorResponse(const openai::ApiError& error) {
  http::Response response =
      JsonResponse(error.http_status, openai::ErrorJson(error));
  if (error.retry_after_s.has_value()) {
    response.headers.push_back(
        {"retry-after", std::to_string(*error.retry_after_s)});
  }
  return response;
}

openai::ApiError RefusalError(int status, std::string_view message,
                              std::size_t body_limit_bytes) {
  if (status == 413) return openai::BodyTooLarge(body_limit_bytes);
  if (status == 503) return openai::Unavailable(std::string(message), 1000);
  if (status >= 500) return openai::InternalError(std::string(message));
  openai::ApiError error;
  error.http_status = status;
  error.message = std::string(message);
  switch (status) {
    case 408:
      error.code = "request_timeout";
      break;
    case 417:
      error.code = "expectation_failed";
      break;
    case 431:
      error.code = "headers_too_large";
      break;
    default:
      error.code = "invalid_http";
  }
  return error;
}

asio::awaitable<void> Send(http::Exchange& exchange, RequestRecord& record,
                           http::Response response) {
  record.status = response.status;
  response.headers.push_back({"x-request-id", record.id});
  const absl::Status status = co_await exchange.Reply(std::move(response));
  if (!status.ok()) record.client_gone = true;
}

asio::awaitable<void> SendError(http::Exchange& exchange, RequestRecord& record,
                                openai::ApiError error) {
  record.error = error.message;
  http::Response response = ErrorResponse(error);
  co_await Send(exchange, record, std::move(response));
}

}  // namespace holdfast::gateway
