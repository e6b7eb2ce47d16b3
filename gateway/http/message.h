// An HTTP request and a whole response, as handlers see them. Plain values.
#ifndef HOLDFAST_GATEWAY_HTTP_MESSAGE_H_
#define HOLDFAST_GATEWAY_HTTP_MESSAGE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;  // as sent: methods are case-sensitive
  std::string path;    // target up to '?', percent-encoding left as it is
  std::string query;   // behind '?', without it
  std::vector<Header> headers;
  std::string body;  // chunked coding removed
  // The connection comes from this machine. It says nothing of who is behind
  // it: a proxy's does too.
  bool from_loopback = false;

  // The first header of that name (any case).
  std::optional<std::string_view> Find(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  // Besides content-type, content-length, transfer-encoding and connection,
  // which the server writes. Values must hold no line breaks.
  std::vector<Header> headers;
  std::string body;
};

// The standard phrase of a status code; "Unknown" for a code without one.
std::string_view ReasonPhrase(int status);

// ASCII only: header names and scheme names are.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

}  // namespace holdfast::http

#endif  // HOLDFAST_GATEWAY_HTTP_MESSAGE_H_
