// cublasLt, loaded when it is first needed: a program with the CUDA backend
// starts on machines, and as fast as ones, that have no GPU.
#ifndef HOLDFAST_KERNELS_CUDA_CUBLASLT_LIBRARY_H_
#define HOLDFAST_KERNELS_CUDA_CUBLASLT_LIBRARY_H_

#include <cublasLt.h>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// M(name) for each function cublasLt<name> in use.
// clang-format off
#define HF_EVERY_CUBLASLT_FUNCTION(M)                                     \
  M(GetVersion) M(Create) M(Destroy)                                      \
  M(MatmulDescCreate) M(MatmulDescDestroy) M(MatmulDescSetAttribute)      \
  M(MatrixLayoutCreate) M(MatrixLayoutDestroy)                            \
  M(MatmulPreferenceCreate) M(MatmulPreferenceDestroy)                    \
  M(MatmulPreferenceSetAttribute)                                         \
  M(MatmulAlgoGetHeuristic) M(MatmulAlgoConfigGetAttribute) M(Matmul)
// clang-format on

struct CublasLt {
#define HF_FUNCTION(name) decltype(&::cublasLt##name) name = nullptr;
  HF_EVERY_CUBLASLT_FUNCTION(HF_FUNCTION)
#undef HF_FUNCTION
};

// Found where the toolkit of the build has it, else where the system looks.
// Never unloaded.
StatusOr<const CublasLt*> LoadCublasLt();

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_CUBLASLT_LIBRARY_H_
