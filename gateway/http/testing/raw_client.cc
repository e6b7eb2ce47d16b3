#include "gateway/http/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace holdfast::http::testing {
namespace {

constexpr int kWaitMs = 10000;

bool Wait(int fd, short events) {
  pollfd poll_fd{.fd = fd, .events = events, .revents = 0};
  if (poll(&poll_fd, 1, kWaitMs) > 0) return true;
  ADD_FAILURE() << "nothing happened on the connection for 10 s";
  return false;
}

}  // namespace

RawClient::RawClient(std::uint16_t port, int receive_buffer) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

RawClient::~RawClient() { Close(); }

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawClient::HalfClose() { shutdown(fd_, SHUT_WR); }

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!Wait(fd_, POLLOUT)) return false;
    const ssize_t sent =
        send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawClient::SendRequest(std::string_view method, std::string_view target,
                            std::string_view body,
                            std::string_view extra_headers) {
  return Send(
      fmt::format("{} {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
                  "application/json\r\ncontent-length: {}\r\n{}\r\n{}",
                  method, target, body.size(), extra_headers, body));
}

bool RawClient::Fill() {
  if (!Wait(fd_, POLLIN)) return false;
  char bytes[4096];
  const ssize_t got = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

bool RawClient::Line(std::string* line) {
  std::size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return false;
  }
  *line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return true;
}

bool RawClient::Take(std::size_t bytes, std::string* out) {
  while (buffer_.size() < bytes) {
    if (!Fill()) {
      *out += buffer_;
      buffer_.clear();
      return false;
    }
  }
  out->append(buffer_, 0, bytes);
  buffer_.erase(0, bytes);
  return true;
}

bool RawClient::TakeChunks(std::string* out) {
  std::string line;
  while (Line(&line)) {
    const std::size_t size = std::strtoul(line.c_str(), nullptr, 16);
    if (size > 0 && !Take(size, out)) return false;
    if (!Line(&line)) return false;
    if (size == 0) return true;
  }
  return false;
}

RawResponse RawClient::ReadResponse(bool head) {
  RawResponse response;
  std::string line;
  if (!Line(&line) || line.size() < 12) return response;
  const int status = std::atoi(line.c_str() + 9);
  while (true) {
    if (!Line(&line)) return response;
    if (line.empty()) break;
    const std::size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const std::size_t value = line.find_first_not_of(' ', colon + 1);
    response.headers[name] =
        value == std::string::npos ? "" : line.substr(value);
  }
  response.status = status;
  if (head || status == 204 || status == 100) {
    response.complete = true;
  } else if (response.headers.contains("transfer-encoding")) {
    response.complete = TakeChunks(&response.body);
  } else if (response.headers.contains("content-length")) {
    response.complete = Take(
        std::strtoul(response.headers["content-length"].c_str(), nullptr, 10),
        &response.body);
  } else {
    while (Fill()) continue;
    response.body = std::exchange(buffer_, "");
    response.complete = true;
  }
  return response;
}

std::string RawClient::ReadUntil(std::string_view mark) {
  std::size_t at;
  while ((at = buffer_.find(mark)) == std::string::npos) {
    if (!Fill()) return std::exchange(buffer_, "");
  }
  std::string out = buffer_.substr(0, at + mark.size());
  buffer_.erase(0, at + mark.size());
  return out;
}

bool RawClient::AtEnd() {
  if (buffer_.empty() && !Fill()) return true;
  return false;
}

}  // namespace holdfast::http::testing
