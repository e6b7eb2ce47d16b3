#include "gateway/service/local_request.h"

#include <array>

namespace holdfast::gateway {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::array<std::string_view, 3> kLocalHosts = {"localhost",
                                                         "127.0.0.1", "[::1]"};

// With or without a port.
bool IsLocalHost(std::string_view host) {
  for (const std::string_view local : kLocalHosts) {
    if (!host.starts_with(local)) continue;
    const std::string_view rest = host.substr(local.size());
    if (rest.empty() || rest.front() == ':') return true;
  }
  return false;
}

}  // namespace

bool IsLocalOrigin(std::string_view origin) {
  return origin.starts_with(kScheme) &&
         IsLocalHost(origin.substr(kScheme.size()));
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
