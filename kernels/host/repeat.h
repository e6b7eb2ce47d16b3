// Unrolled code over named variables. Register tiles are written with these
// and not with arrays: SVE vectors cannot be array elements, and GCC 12 keeps
// an array of accumulators in memory unless every loop over it is unrolled.
#ifndef HOLDFAST_KERNELS_HOST_REPEAT_H_
#define HOLDFAST_KERNELS_HOST_REPEAT_H_

#define HF_REPEAT_4(M) M(0) M(1) M(2) M(3)
#define HF_REPEAT_6(M) HF_REPEAT_4(M) M(4) M(5)
#define HF_REPEAT_8(M) HF_REPEAT_6(M) M(6) M(7)
#define HF_REPEAT_12(M) HF_REPEAT_8(M) M(8) M(9) M(10) M(11)

#endif  // HOLDFAST_KERNELS_HOST_REPEAT_H_
