// Which instruction sets the kernels are built for. Include before Highway in
// every unit that uses it: the choice must be the same everywhere.
//
// Without fused multiply-add the defined arithmetic does not exist, so SSE
// targets are left out; Highway's mandatory baseline is compiled as "no
// kernels" (HF_TARGET_HAS_KERNELS). AVX3_DL adds nothing that is used here.
#ifndef HOLDFAST_KERNELS_HOST_HIGHWAY_TARGETS_H_
#define HOLDFAST_KERNELS_HOST_HIGHWAY_TARGETS_H_

#ifdef __FAST_MATH__
#error "the arithmetic is defined to the bit: build without -ffast-math"
#endif
#ifdef HWY_DISABLE_BMI2_FMA
#error "the kernels need fused multiply-add"
#endif

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

#define HF_TARGET_HAS_KERNELS \
  (HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR)

#endif  // HOLDFAST_KERNELS_HOST_HIGHWAY_TARGETS_H_
