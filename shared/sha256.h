// SHA-256 of bytes that arrive in pieces (OpenSSL).
#ifndef HOLDFAST_SHARED_SHA256_H_
#define HOLDFAST_SHARED_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace holdfast {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Not thread-safe. Running out of memory inside OpenSSL aborts.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& Update(const void* data, std::size_t bytes);
  Sha256& Update(std::string_view text) {
    return Update(text.data(), text.size());
  }
  Sha256& Update(const Sha256Digest& digest) {
    return Update(digest.data(), digest.size());
  }
  // Eight bytes, little-endian on every machine.
  Sha256& UpdateU64(std::uint64_t value);
  // A length before the text, so that neighbouring fields cannot run together.
  Sha256& UpdateField(std::string_view text);
  // The digest of everything so far; starts anew.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Of a whole file, read in pieces. The error names the file.
absl::StatusOr<Sha256Digest> Sha256OfFile(const std::string& path);

std::string ToHex(std::span<const std::uint8_t> bytes);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_SHA256_H_
