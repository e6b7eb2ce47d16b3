// Norms, rotation, activation and addition: one row at a time.
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/row_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/host/kernel_tables.h"
#include "kernels/host/square_sum-inl.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

void RmsNorm(const float* x, const float* weight, float eps, int cols,
             float* out) {
  const DF d;
  const float mean = SquareSum(x, cols) / static_cast<float>(cols);
  const float scale = 1.0f / std::sqrt(mean + eps);
  const VF scales = hn::Set(d, scale);
  const int step = LaneCount();
  int k = 0;
  for (; k + step <= cols; k += step) {
    const VF normed = hn::Mul(hn::LoadU(d, x + k), scales);
    hn::StoreU(hn::Mul(normed, hn::LoadU(d, weight + k)), d, out + k);
  }
  for (; k < cols; ++k) out[k] = x[k] * scale * weight[k];
}

void AddInto(float* x, const float* y, std::int64_t count) {
  const DF d;
  const int step = LaneCount();
  std::int64_t k = 0;
  for (; k + step <= count; k += step) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + k), hn::LoadU(d, y + k)), d, x + k);
  }
  for (; k < count; ++k) x[k] += y[k];
}

void SiluMul(const float* gate, const float* up, int cols, float* out) {
  const DF d;
  const int step = LaneCount();
  int k = 0;
  for (; k + step <= cols; k += step) {
    const VF activated = Silu(hn::LoadU(d, gate + k));
    hn::StoreU(hn::Mul(activated, hn::LoadU(d, up + k)), d, out + k);
  }
  for (; k < cols; ++k) {
    float lanes[kVirtualLanes];
    hn::StoreU(Silu(hn::Set(d, gate[k])), d, lanes);
    out[k] = lanes[0] * up[k];
  }
}

void Rope(float* head, const float* cos, const float* sin, int rotary_dims) {
  const DF d;
  const int half = rotary_dims / 2;
  const int step = LaneCount();
  int i = 0;
  for (; i + step <= half; i += step) {
    const VF a = hn::LoadU(d, head + i);
    const VF b = hn::LoadU(d, head + half + i);
    const VF c = hn::LoadU(d, cos + i);
    const VF s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, head + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, head + half + i);
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = std::fma(-b, sin[i], a * cos[i]);
    head[half + i] = std::fma(a, sin[i], b * cos[i]);
  }
}

const RowKernels* GetRowKernels() {
  static constexpr RowKernels kTable = {&RmsNorm, &AddInto, &SiluMul, &Rope};
  return &kTable;
}

#else

const RowKernels* GetRowKernels() { return nullptr; }

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GetRowKernels);

const RowKernels* ChooseRowKernels() {
  return HWY_DYNAMIC_DISPATCH(GetRowKernels)();
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
