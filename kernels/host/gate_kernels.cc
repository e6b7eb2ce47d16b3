// Sigmoid gates and the router of experts: one row at a time.
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/gate_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/host/gate_math-inl.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/softmax-inl.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// One number, as every lane would compute it.
HWY_INLINE float SigmoidOf(float x) {
  return hn::GetLane(Sigmoid(hn::Set(DF(), x)));
}

void SigmoidMul(const float* gate, int cols, float* x) {
  const DF d;
  const int step = LaneCount();
  int i = 0;
  for (; i + step <= cols; i += step) {
    const VF opened = Sigmoid(hn::LoadU(d, gate + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), opened), d, x + i);
  }
  for (; i < cols; ++i) x[i] *= SigmoidOf(gate[i]);
}

void AddScaled(const float* y, float weight, int cols, float* x) {
  const DF d;
  const VF weights = hn::Set(d, weight);
  const int step = LaneCount();
  int i = 0;
  for (; i + step <= cols; i += step) {
    const VF sum =
        hn::MulAdd(hn::LoadU(d, y + i), weights, hn::LoadU(d, x + i));
    hn::StoreU(sum, d, x + i);
  }
  for (; i < cols; ++i) x[i] = std::fma(y[i], weight, x[i]);
}

void AddGated(const float* y, float gate, int cols, float* x) {
  AddScaled(y, SigmoidOf(gate), cols, x);
}

float RouterWeights(float* scores, int experts) {
  float lanes[kVirtualLanes];
  SoftmaxWeights(scores, experts, lanes);
  return TreeSum(lanes);
}

const GateKernels* GetGateKernels() {
  static constexpr GateKernels kTable = {&SigmoidMul, &AddScaled, &AddGated,
                                         &RouterWeights};
  return &kTable;
}

#else

const GateKernels* GetGateKernels() { return nullptr; }

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GetGateKernels);

const GateKernels* ChooseGateKernels() {
  return HWY_DYNAMIC_DISPATCH(GetGateKernels)();
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
