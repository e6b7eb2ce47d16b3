#include "gateway/service/api_keys.h"

#include <cerrno>
#include <fstream>

#include "absl/status/status.h"
#include "openssl/crypto.h"
#include "openssl/sha.h"

namespace holdfast::gateway {
namespace {

constexpr std::string_view kBearer = "Bearer ";

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

ApiKeys::Digest ApiKeys::Hash(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(),
         digest.data());
  return digest;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::vector<std::string>& keys,
                                      const std::string& file,
                                      const std::string& file_flag) {
  ApiKeys loaded;
  for (const std::string& key : keys) loaded.digests_.push_back(Hash(key));
  if (file.empty()) return loaded;
  std::ifstream in(file);
  if (!in) return absl::ErrnoToStatus(errno, file_flag + " " + file);
  const std::size_t before = loaded.digests_.size();
  std::string line;
  while (std::getline(in, line)) {
    const std::string_view key = Trim(line);
    if (!key.empty() && key.front() != '#')
      loaded.digests_.push_back(Hash(key));
  }
  if (in.bad()) {
    return absl::InvalidArgumentError(file_flag + " " + file +
                                      ": cannot be read (is it a file?)");
  }
  if (loaded.digests_.size() == before) {
    return absl::InvalidArgumentError(file_flag + " " + file +
                                      ": holds no key");
  }
  return loaded;
}

bool ApiKeys::Knows(std::string_view key) const {
  // Digests have one length, so neither a key's length nor how much of it is
  // right shows in the time.
  const Digest digest = Hash(key);
  bool found = false;
  for (const Digest& known : digests_)
    found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  return found;
}

bool ApiKeys::Allows(const http::Request& request) const {
  const auto bearer = request.Find("authorization");
  if (bearer.has_value() && bearer->size() > kBearer.size() &&
      http::EqualsIgnoreCase(bearer->substr(0, kBearer.size()), kBearer) &&
      Knows(Trim(bearer->substr(kBearer.size()))))
    return true;
  // Some clients send a placeholder as the bearer and the key here.
  const auto plain = request.Find("x-api-key");
  return plain.has_value() && Knows(Trim(*plain));
}

}  // namespace holdfast::gateway
