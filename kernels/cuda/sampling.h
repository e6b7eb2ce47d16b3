// A token from a row of logits, on the device: the same one that TokenChooser
// (kernels/sampling) chooses, as the sums are doubles in its order and the draw
// is its text.
#ifndef HOLDFAST_KERNELS_CUDA_SAMPLING_H_
#define HOLDFAST_KERNELS_CUDA_SAMPLING_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/sampling/token_choice.h"

namespace holdfast::kernels::cuda {

// Best first, as many are ranked; a draw beyond them is undecided.
inline constexpr int kMostCandidates = 256;

// Of a choice's work space, at a multiple of 8.
std::size_t ChoiceScratchBytes(int vocab);

// `out` is the device's. The scratch may be used again by what follows on the
// stream.
cudaError_t ChooseToken(cudaStream_t stream, const float* logits, int vocab,
                        const TokenChoice& choice, void* scratch,
                        ChosenToken* out);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_SAMPLING_H_
