// What is known of one request: its log line and its metrics come from here.
#ifndef HOLDFAST_GATEWAY_SERVICE_REQUEST_RECORD_H_
#define HOLDFAST_GATEWAY_SERVICE_REQUEST_RECORD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace holdfast::gateway {

struct RequestRecord {
  std::string id;  // x-request-id, the client's or ours
  // The route, not the path: a label of bounded cardinality.
  std::string route = "other";
  std::chrono::steady_clock::time_point began =
      std::chrono::steady_clock::now();
  int status = 0;
  bool client_gone = false;
  std::string error;  // the message that the client got

  // Generations only.
  bool generation = false;
  bool stream = false;
  bool stream_error = false;  // an error event: its status was sent before
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::string cache_source;
  std::uint32_t output_tokens = 0;
  std::optional<double> first_token_ms;

  double ElapsedMs() const {
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - began)
        .count();
  }
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_REQUEST_RECORD_H_
