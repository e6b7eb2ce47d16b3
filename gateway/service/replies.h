// Whole answers: JSON, errors, and the headers that every answer has.
#ifndef HOLDFAST_GATEWAY_SERVICE_REPLIES_H_
#define HOLDFAST_GATEWAY_SERVICE_REPLIES_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "gateway/http/exchange.h"
#include "gateway/http/message.h"
#include "gateway/openai/error.h"
#include "gateway/service/request_record.h"

namespace holdfast::gateway {

http::Response JsonResponse(int status, const openai::Json& body);
// With Retry-After where the error says when to come back.
http::Response ErrorResponse(const openai::ApiError& error);
// What the HTTP server refuses by itself, with the codes of error.h.
openai::ApiError RefusalError(int status, std::string_view message,
                              std::size_t body_limit_bytes);

// Adds x-request-id and sends. What fails (the client has gone) is noted in the
// record; there is nothing else to do about it.
boost::asio::awaitable<void> Send(http::Exchange& exchange,
                                  RequestRecord& record,
                                  http::Response response);
boost::asio::awaitable<void> SendError(http::Exchange& exchange,
                                       RequestRecord& record,
                                       openai::ApiError error);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_REPLIES_H_
