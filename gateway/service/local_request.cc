#include "gateway/service/local_request.h"

#include <algorithm>

#include "boost/asio/ip/address_v4.hpp"

namespace holdfast::gateway {
namespace {

constexpr std::string_view kSixLoopback = "[::1]";

// Empty, or ":8000".
bool IsPort(std::string_view text) {
  return text.empty() || (text.front() == ':' &&
                          std::all_of(text.begin() + 1, text.end(), [](char c) {
                            return c >= '0' && c <= '9';
                          }));
}

}  // namespace

bool IsLocalHost(std::string_view host) {
  if (host.starts_with(kSixLoopback)) {
    return IsPort(host.substr(kSixLoopback.size()));
  }
  const std::size_t end = std::min(host.find(':'), host.size());
  if (!IsPort(host.substr(end))) return false;
  const std::string_view name = host.substr(0, end);
  if (http::EqualsIgnoreCase(name, "localhost")) return true;
  boost::system::error_code error;
  const auto address =
      boost::asio::ip::make_address_v4(std::string(name), error);
  return !error && address.is_loopback();
}

bool IsLocalOrigin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) {
      return IsLocalHost(origin.substr(scheme.size()));
    }
  }
  return false;
}

bool IsFromThisMachine(const http::Request& request) {
  if (!request.from_loopback) return false;
  for (const char* proxied :
       {"forwarded", "x-forwarded-for", "x-real-ip", "via"}) {
    if (request.Find(proxied).has_value()) return false;
  }
  const auto origin = request.Find("origin");
  if (origin.has_value() && !IsLocalOrigin(*origin)) return false;
  const auto host = request.Find("host");
  return !host.has_value() || IsLocalHost(*host);
}

}  // namespace holdfast::gateway
