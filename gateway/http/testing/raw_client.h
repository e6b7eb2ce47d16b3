// A blocking HTTP client for tests, at the level of bytes: it sends what it is
// told, right or wrong. Every wait ends after 10 s with a test failure.
#ifndef HOLDFAST_GATEWAY_HTTP_TESTING_RAW_CLIENT_H_
#define HOLDFAST_GATEWAY_HTTP_TESTING_RAW_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::http::testing {

struct RawResponse {
  int status = 0;  // 0: the connection ended before a head was complete
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunked coding removed
  bool complete = false;  // the body ended as its framing says
};

class RawClient {
 public:
  // Connects to 127.0.0.1. `receive_buffer` bytes when not 0: a client that is
  // slow to read fills up fast.
  explicit RawClient(std::uint16_t port, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the peer has closed.
  bool Send(std::string_view bytes);
  // Request line, headers host, content-type and content-length, body.
  bool SendRequest(std::string_view method, std::string_view target,
                   std::string_view body = "",
                   std::string_view extra_headers = "");
  void HalfClose();
  void Close();

  // `head`: the answer to a HEAD request, which has no body.
  RawResponse ReadResponse(bool head = false);
  // Bytes up to and including `mark`; what came when the connection ends first.
  std::string ReadUntil(std::string_view mark);
  // Whether the peer closes without sending anything more.
  bool AtEnd();

 private:
  bool Fill();  // false: the connection ended
  bool Line(std::string* line);
  bool Take(std::size_t bytes, std::string* out);
  bool TakeChunks(std::string* out);

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace holdfast::http::testing

#endif  // HOLDFAST_GATEWAY_HTTP_TESTING_RAW_CLIENT_H_
