#include "tests/bench/plain_fma.h"

#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/plain_fma.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "benchmark/benchmark.h"
#include "hwy/highway.h"
#include "kernels/host/repeat.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // more than latency times units, and they fit
constexpr int kSteps = 20'000;

double FmaWork() {
  return 2.0 * kSteps * kChains * hn::Lanes(hn::ScalableTag<float>());
}

float FmaChains() {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f);
  const auto added = hn::Set(d, 1e-3f);
#define HF_START(i) auto c##i = hn::Set(d, 1.0f + i);
#define HF_STEP(i) c##i = hn::MulAdd(c##i, factor, added);
  HF_REPEAT_12(HF_START)
  for (int step = 0; step < kSteps; ++step) {
    HF_REPEAT_12(HF_STEP)
  }
#define HF_ADD(i) c0 = hn::Add(c0, c##i);
  HF_REPEAT_12(HF_ADD)
#undef HF_START
#undef HF_STEP
#undef HF_ADD
  return hn::GetLane(c0);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::bench {
namespace {

HWY_EXPORT(FmaWork);
HWY_EXPORT(FmaChains);

}  // namespace

double PlainFmaWork() { return HWY_DYNAMIC_DISPATCH(FmaWork)(); }

void RunPlainFma(kernels::ThreadPool& pool) {
  pool.For(pool.threads(), [](int, int) {
    benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(FmaChains)());
  });
}

}  // namespace holdfast::bench
#endif  // HWY_ONCE
