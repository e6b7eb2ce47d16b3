#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/plain_scale.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <algorithm>

#include "benchmark/benchmark.h"
#include "hwy/highway.h"
#include "tests/bench/plain_scale.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whole vectors of any target.
void ScalePiece(float* data, std::size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const auto factors = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(factors, hn::LoadU(d, data + i)), d, data + i);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::bench {
namespace {

HWY_EXPORT(ScalePiece);

constexpr std::size_t kPieceFloats = 16384;  // a head's state

}  // namespace

PlainScale::PlainScale(std::size_t bytes)
    : memory_(*kernels::HostMemory::Make(
          (bytes / sizeof(float) + kPieceFloats - 1) / kPieceFloats *
              kPieceFloats * sizeof(float),
          "plain scale")) {
  std::fill_n(memory_.floats(), memory_.bytes() / sizeof(float), 1.0f);
}

void PlainScale::Run(kernels::ThreadPool& pool) {
  const auto pieces =
      static_cast<int>(memory_.bytes() / sizeof(float) / kPieceFloats);
  benchmark::DoNotOptimize(factor_);
  pool.For(pieces, [&](int index, int) {
    HWY_DYNAMIC_DISPATCH(ScalePiece)
    (memory_.floats() + index * kPieceFloats, kPieceFloats, factor_);
  });
}

}  // namespace holdfast::bench
#endif  // HWY_ONCE
