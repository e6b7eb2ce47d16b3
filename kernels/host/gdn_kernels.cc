// Convolution, gates, recurrence and gated norm of a gated delta net.
#include "kernels/host/gdn_kernels.h"

#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/gdn_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/host/gate_math-inl.h"
#include "kernels/host/gdn_conv-inl.h"
#include "kernels/host/gdn_recurrence-inl.h"
#include "kernels/host/gdn_step-inl.h"
#include "kernels/host/square_sum-inl.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

void GdnGates(const float* b, const float* a, const float* decay_rate,
              const float* dt_bias, int heads, std::int64_t stride, float* beta,
              float* decay) {
  const DF d;
  const int step = LaneCount();
  for (int h = 0; h < heads; h += step) {
    const int count = heads - h < step ? heads - h : step;
    const auto used = hn::FirstN(d, count);
    const VF dt = hn::Add(hn::MaskedLoad(used, d, a + h),
                          hn::MaskedLoad(used, d, dt_bias + h));
    const VF rate = hn::MaskedLoad(used, d, decay_rate + h);
    float betas[kVirtualLanes];
    float decays[kVirtualLanes];
    hn::StoreU(Sigmoid(hn::MaskedLoad(used, d, b + h)), d, betas);
    hn::StoreU(ExpOrZero(hn::Mul(rate, Softplus(dt))), d, decays);
    for (int i = 0; i < count; ++i) {
      beta[(h + i) * stride] = betas[i];
      decay[(h + i) * stride] = decays[i];
    }
  }
}

void GdnGatedNorm(const GdnNormHead& head) {
  const DF d;
  const int step = LaneCount();
  const int dims = head.dims;
  for (int first = 0; first < head.rows; first += kVirtualLanes) {
    const int rest = head.rows - first;
    const int rows = rest < kVirtualLanes ? rest : kVirtualLanes;
    const float* x = head.x + static_cast<std::ptrdiff_t>(first) * dims;
    float scales[kVirtualLanes];
    InverseNorms(x, rows, dims, static_cast<float>(dims), head.eps, scales);
    for (int r = 0; r < rows; ++r, x += dims) {
      const float* z = head.z + (first + r) * head.z_stride;
      float* out = head.out + (first + r) * head.out_stride;
      const VF scale = hn::Set(d, scales[r]);
      for (int i = 0; i < dims; i += step) {
        const VF normed = hn::Mul(hn::Mul(hn::LoadU(d, x + i), scale),
                                  hn::LoadU(d, head.weight + i));
        hn::StoreU(hn::Mul(normed, Silu(hn::LoadU(d, z + i))), d, out + i);
      }
    }
  }
}

const GdnKernels* GetGdnKernels() {
  static constexpr GdnKernels kTable = {
      kGdnStripes, &GdnConv, &GdnGates, &GdnRecur, &GdnStepRow, &GdnGatedNorm};
  return &kTable;
}

#else

const GdnKernels* GetGdnKernels() { return nullptr; }

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GetGdnKernels);

const GdnKernels* ChooseGdnKernels() {
  return HWY_DYNAMIC_DISPATCH(GetGdnKernels)();
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
