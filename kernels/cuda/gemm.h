// Products of bf16 matrices by cublasLt, accumulated in float.
#ifndef HOLDFAST_KERNELS_CUDA_GEMM_H_
#define HOLDFAST_KERNELS_CUDA_GEMM_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cublaslt_library.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

struct DestroyCublasLt {
  const CublasLt* library = nullptr;
  void operator()(cublasLtContext* handle) const {
    (void)library->Destroy(handle);
  }
};

// On one stream, with a workspace of its own. One algorithm for each shape of
// weights, whatever the rows: chosen once, by the library's heuristic for
// tuned_rows rows, without split sums, and recorded. Should the library refuse
// it for other rows, these have one of their own from then on. So equal rows
// give equal bits, launch for launch, as long as library and device are the
// same.
class Gemm {
 public:
  static StatusOr<std::unique_ptr<Gemm>> Make(cudaStream_t stream,
                                              int tuned_rows);

  // y[r][j] = sum over k of x[r][k] w[j][k] for j below n: w and x with rows
  // `stride` numbers apart (a multiple of 8), y with rows y_stride apart.
  Status Multiply(const std::uint16_t* w, std::int64_t n,
                  const std::uint16_t* x, int rows, std::int64_t k,
                  std::int64_t stride, float* y, std::int64_t y_stride);

  // Library version and the algorithms chosen so far, by shape: what results
  // depend on beside the device.
  std::string Record() const;
  std::size_t choices() const { return chosen_.size(); }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  struct Shape {
    std::int64_t n, k, stride, y_stride;
    std::int64_t y_alignment;  // bytes: of y and its rows
    int rows;                  // that are refused another's; 0: all others
    auto operator<=>(const Shape&) const = default;
  };
  StatusOr<cublasLtMatmulAlgo_t> Choose(const Shape& shape);

  cudaStream_t stream_ = nullptr;
  int tuned_rows_ = 0;
  const CublasLt* library_ = nullptr;
  std::unique_ptr<cublasLtContext, DestroyCublasLt> handle_;
  DeviceMemory workspace_;
  std::map<Shape, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_GEMM_H_
