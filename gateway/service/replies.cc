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

http::Response RefusalResponse(int status, std::string_view message) {
  openai::ApiError error;
  error.http_status = status;
  error.message = std::string(message);
  if (status == 503) {
    error.type = "unavailable_error";
    error.retry_after_s = 1;
  } else if (status >= 500) {
    error.type = "server_error";
  }
  return ErrorResponse(error);
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
