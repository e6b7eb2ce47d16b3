#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/plain_read.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <algorithm>
#include <cstdint>

#include "benchmark/benchmark.h"
#include "hwy/highway.h"
#include "tests/bench/plain_read.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Adds up whole runs of eight vectors: enough loads under way at once.
std::uint64_t ReadPiece(const std::uint64_t* data, std::size_t count) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t step = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  auto s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i + 8 * step <= count; i += 8 * step) {
    const std::uint64_t* p = data + i;
    s0 = hn::Add(s0, hn::LoadU(d, p));
    s1 = hn::Add(s1, hn::LoadU(d, p + step));
    s2 = hn::Add(s2, hn::LoadU(d, p + 2 * step));
    s3 = hn::Add(s3, hn::LoadU(d, p + 3 * step));
    s4 = hn::Add(s4, hn::LoadU(d, p + 4 * step));
    s5 = hn::Add(s5, hn::LoadU(d, p + 5 * step));
    s6 = hn::Add(s6, hn::LoadU(d, p + 6 * step));
    s7 = hn::Add(s7, hn::LoadU(d, p + 7 * step));
  }
  const auto low = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  const auto high = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::bench {
namespace {

HWY_EXPORT(ReadPiece);

// A multiple of eight vectors of any target.
constexpr std::size_t kAlign = 8 * 256;
constexpr std::size_t kMostPiece = 512 << 10;

}  // namespace

PlainRead::PlainRead(std::size_t bytes)
    : memory_(*kernels::HostMemory::Make((bytes + kAlign - 1) / kAlign * kAlign,
                                         "plain read")) {
  std::fill_n(memory_.data(), memory_.bytes(), std::byte{1});
}

void PlainRead::Run(kernels::ThreadPool& pool) {
  const std::size_t share = memory_.bytes() / pool.threads() / kAlign * kAlign;
  const std::size_t piece = std::clamp(share, kAlign, kMostPiece);
  const auto pieces = static_cast<int>((memory_.bytes() + piece - 1) / piece);
  pool.For(pieces, [&](int index, int) {
    const std::size_t start = index * piece;
    const std::size_t bytes = std::min(piece, memory_.bytes() - start);
    benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(ReadPiece)(
        reinterpret_cast<const std::uint64_t*>(memory_.data() + start),
        bytes / sizeof(std::uint64_t)));
  });
}

}  // namespace holdfast::bench
#endif  // HWY_ONCE
