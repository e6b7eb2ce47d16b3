// API keys: who may call what is not open to everybody.
#ifndef HOLDFAST_GATEWAY_SERVICE_API_KEYS_H_
#define HOLDFAST_GATEWAY_SERVICE_API_KEYS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/http/message.h"

namespace holdfast::gateway {

// Immutable; holds digests, not keys.
class ApiKeys {
 public:
  // `file` may be empty; `file_flag` is what names it. An error names both; a
  // file without any key is one, since it would leave the server open by
  // mistake.
  static absl::StatusOr<ApiKeys> Load(const std::vector<std::string>& keys,
                                      const std::string& file,
                                      const std::string& file_flag);

  // No key is asked for.
  bool open() const { return digests_.empty(); }
  // Whether the request carries a key: "Authorization: Bearer K" or
  // "x-api-key: K". Takes the same time for every wrong key.
  bool Allows(const http::Request& request) const;

 private:
  using Digest = std::array<std::uint8_t, 32>;
  static Digest Hash(std::string_view key);
  bool Knows(std::string_view key) const;
  std::vector<Digest> digests_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_API_KEYS_H_
