#include <cstring>

#include "shared/cache_layout.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

// shared/content_sum, written from its comment.
std::uint64_t MixA(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
std::uint64_t MixB(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

}  // namespace

void CheckContentSums(Checker& checker) {
  CacheLayout layout;
  layout.views = {{"K", 192, 1}, {"V", 64, 1}};
  const std::size_t block_bytes = 256 * kBlockTokens;
  kernels::Limits limits;
  limits.max_rows = 16;
  checker.Expect(checker.backend().Prepare(limits));
  Random random(5);
  std::vector<std::vector<std::byte>> hosts;
  std::vector<const std::byte*> blocks;
  for (int b = 0; b < 3; ++b) {
    std::vector<std::byte> host(block_bytes);
    for (std::byte& byte : host) byte = static_cast<std::byte>(random.Bits());
    std::byte* const device = checker.Allocate(block_bytes);
    checker.Expect(checker.backend().Write(host.data(), block_bytes, device));
    blocks.push_back(device);
    hosts.push_back(std::move(host));
  }
  const auto sums = checker.backend().ViewSums(layout, blocks);
  if (!sums.ok()) checker.Expect(sums.status());
  std::size_t offset = 0;
  int wrong = sums.ok() ? 0 : 1;
  for (std::size_t v = 0; sums.ok() && v < layout.views.size(); ++v) {
    const std::size_t bytes = layout.views[v].bytes_per_token * kBlockTokens;
    std::uint64_t a = 3 * bytes;
    std::uint64_t b = 3 * bytes;
    std::uint64_t number = 0;
    for (const auto& host : hosts) {
      for (std::size_t at = 0; at < bytes; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, &host[offset + at], 8);
        ++number;
        a += MixA(word ^ 0x9e3779b97f4a7c15 * number);
        b += MixB(word ^ 0xd1b54a32d192ed03 * number);
      }
    }
    wrong += (*sums)[v].a != a;
    wrong += (*sums)[v].b != b;
    offset += bytes;
  }
  const float got[] = {static_cast<float>(wrong)};
  checker.Compare("content sums", got, {0.0}, 0.0);
}

}  // namespace holdfast::gpu_check
