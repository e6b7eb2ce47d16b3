#include "shared/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace holdfast {
namespace {

// OpenSSL's digest calls fail only for want of memory or a broken library.
void CheckOne(int result) {
  if (result != 1) std::abort();
}

struct FileCloser {
  int fd;
  ~FileCloser() { close(fd); }
};

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (context_->md == nullptr) std::abort();
  CheckOne(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(const void* data, std::size_t bytes) {
  CheckOne(EVP_DigestUpdate(context_->md, data, bytes));
  return *this;
}

Sha256& Sha256::UpdateU64(std::uint64_t value) {
  std::uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
  return Update(bytes, sizeof(bytes));
}

Sha256& Sha256::UpdateField(std::string_view text) {
  return UpdateU64(text.size()).Update(text);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  CheckOne(EVP_DigestFinal_ex(context_->md, digest.data(), nullptr));
  CheckOne(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr));
  return digest;
}

absl::StatusOr<Sha256Digest> Sha256OfFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, fmt::format("open {}", path));
  FileCloser closer{fd};
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::uint8_t> piece(1 << 20);
  Sha256 sha;
  for (;;) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return absl::ErrnoToStatus(errno, fmt::format("read {}", path));
    if (got == 0) return sha.Finish();
    sha.Update(piece.data(), static_cast<std::size_t>(got));
  }
}

std::string ToHex(std::span<const std::uint8_t> bytes) {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (std::uint8_t byte : bytes) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

}  // namespace holdfast
