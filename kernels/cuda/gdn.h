// A gated delta net layer (kernels/backend.h says what it computes). As in
// rows.h.
#ifndef HOLDFAST_KERNELS_CUDA_GDN_H_
#define HOLDFAST_KERNELS_CUDA_GDN_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/backend.h"
#include "kernels/cuda/launch_table.h"

namespace holdfast::kernels::cuda {

// Scratch for a launch of `rows` rows, in floats: convolved rows, then beta and
// decay of every value head.
std::size_t GdnScratchFloats(const GdnShape& shape, int rows);

// Why no kernel computes the shape; null: one does.
const char* GdnRefusal(const GdnShape& shape);

// The recurrence is sequential, a warp for eight columns of a head's state,
// which stays in its registers: equal bits however a sequence is cut.
cudaError_t GatedDeltaNet(cudaStream_t stream, const GdnShape& shape,
                          const GdnWeights& weights, const GdnPlace& place,
                          const float* projected, int row_stride,
                          const LaunchTable& table, float* scratch, float* out);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_GDN_H_
