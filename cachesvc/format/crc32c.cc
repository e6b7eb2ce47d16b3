#include <isa-l/crc.h>

#include <algorithm>

#include "cachesvc/format/meta.h"
#include "shared/check.h"

namespace holdfast::cachesvc {
namespace {

// The library counts in int.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

}  // namespace

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  crc = ~crc;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kLargestCall);
    // It does not write; its signature lacks the const.
    auto* data =
        reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(n), crc);
    bytes = bytes.subspan(n);
  }
  return ~crc;
}

std::vector<std::uint32_t> PieceCrcs(
    std::span<const std::span<const std::byte>> parts) {
  std::vector<std::uint32_t> crcs;
  std::uint32_t crc = 0;
  std::uint64_t filled = 0;
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      const std::size_t n = static_cast<std::size_t>(
          std::min<std::uint64_t>(part.size(), format::kCrcPiece - filled));
      crc = Crc32c(part.first(n), crc);
      part = part.subspan(n);
      filled += n;
      if (filled == format::kCrcPiece) {
        crcs.push_back(crc);
        crc = 0;
        filled = 0;
      }
    }
  }
  if (filled != 0) crcs.push_back(crc);
  return crcs;
}

}  // namespace holdfast::cachesvc
