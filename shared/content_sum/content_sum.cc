#include "shared/content_sum/content_sum.h"

#include <bit>
#include <cstring>

#include "shared/check.h"

namespace holdfast {
namespace {

static_assert(std::endian::native == std::endian::little,
              "sums are part of file names: words are little-endian");

constexpr std::uint64_t kStepA = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kStepB = 0xd1b54a32d192ed03;

constexpr std::uint64_t MixA(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t MixB(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

}  // namespace

void ContentSummer::Update(std::span<const std::byte> bytes) {
  HF_CHECK(bytes_ % 8 == 0);  // a partial word ends the buffer
  std::uint64_t a = a_, b = b_, i = words_;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    ++i;
    a += MixA(word ^ (kStepA * i));
    b += MixB(word ^ (kStepB * i));
  }
  if (at < bytes.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, bytes.size() - at);
    ++i;
    a += MixA(word ^ (kStepA * i));
    b += MixB(word ^ (kStepB * i));
  }
  a_ = a;
  b_ = b;
  words_ = i;
  bytes_ += bytes.size();
}

ContentSum ContentSummer::Finish() const { return {a_ + bytes_, b_ + bytes_}; }

ContentSum ContentSumOf(std::span<const std::byte> bytes) {
  ContentSummer summer;
  summer.Update(bytes);
  return summer.Finish();
}

std::vector<ContentSum> ViewSums(const CacheLayout& layout,
                                 std::span<const std::byte* const> blocks) {
  std::vector<ContentSum> sums;
  std::size_t offset = 0;
  for (const View& view : layout.views) {
    const std::size_t bytes = view.bytes_per_token * kBlockTokens;
    ContentSummer summer;
    for (const std::byte* block : blocks) {
      summer.Update({block + offset, bytes});
    }
    sums.push_back(summer.Finish());
    offset += bytes;
  }
  return sums;
}

}  // namespace holdfast
