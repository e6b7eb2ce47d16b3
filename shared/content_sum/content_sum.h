// Two 64-bit sums of a buffer's content, by which equal session chunks are
// found without comparing bytes. Each is order-free inside, so that a device
// can add its words in any order; this is the host's version.
//
//   sum = bytes + the sum over 8-byte words w(0), w(1), ... of
//         mix(w(i) xor K * (i + 1)), all modulo 2^64
//
// words little-endian, a last partial word filled up with zeros. The two sums
// differ in K and mix:
//   a: K = 9e3779b97f4a7c15, mix = splitmix64's finaliser
//   b: K = d1b54a32d192ed03, mix = murmur3's 64-bit finaliser
// They find damage and difference, not an adversary.
#ifndef HOLDFAST_SHARED_CONTENT_SUM_CONTENT_SUM_H_
#define HOLDFAST_SHARED_CONTENT_SUM_CONTENT_SUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/cache_layout.h"

namespace holdfast {

struct ContentSum {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  bool operator==(const ContentSum&) const = default;
};

// Of bytes that arrive in pieces. Every piece but the last is a multiple of 8
// bytes.
class ContentSummer {
 public:
  void Update(std::span<const std::byte> bytes);
  ContentSum Finish() const;

 private:
  std::uint64_t a_ = 0;
  std::uint64_t b_ = 0;
  std::uint64_t words_ = 0;
  std::uint64_t bytes_ = 0;
};

ContentSum ContentSumOf(std::span<const std::byte> bytes);

// One sum for each view over the rows of `blocks` (each layout.BlockBytes()
// long), as if that view's parts of all blocks were joined.
std::vector<ContentSum> ViewSums(const CacheLayout& layout,
                                 std::span<const std::byte* const> blocks);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_CONTENT_SUM_CONTENT_SUM_H_
