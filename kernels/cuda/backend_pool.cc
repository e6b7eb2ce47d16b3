// Whole blocks: copies, content sums.
#include <string>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/content_sum.h"

namespace holdfast::kernels::cuda {

void BackendImpl::CopyBlockRows(const KvShape& shape, const std::byte* from,
                                int rows, std::byte* to) {
  const std::size_t layer_bytes = shape.TokenBytes() * kBlockTokens;
  const std::size_t granules =
      static_cast<std::size_t>(rows + kGranuleTokens - 1) / kGranuleTokens;
  const std::size_t bytes = granules * kGranuleTokens * shape.TokenBytes();
  if (bytes == 0) return;
  Note(cudaMemcpy2DAsync(to, layer_bytes, from, layer_bytes, bytes,
                         2 * static_cast<std::size_t>(shape.layers),
                         cudaMemcpyDeviceToDevice, stream_.get()),
       "CopyBlockRows");
}

StatusOr<std::vector<CudaBackend::Sums>> BackendImpl::ViewSums(
    const CacheLayout& layout, std::span<const std::byte* const> blocks) {
  std::vector<Sums> sums(layout.views.size());
  static_assert(sizeof(Sums) == 2 * sizeof(unsigned long long));
  const std::size_t sum_bytes = sums.size() * sizeof(Sums);
  if (sum_bytes + blocks.size_bytes() > results_.bytes()) {
    return FailedPrecondition("CUDA backend: sums over " +
                              std::to_string(blocks.size()) + " blocks");
  }
  HF_RETURN_IF_ERROR(Write(sums.data(), sum_bytes, results_.data()));
  std::byte* const table = results_.data() + sum_bytes;
  HF_RETURN_IF_ERROR(Write(blocks.data(), blocks.size_bytes(), table));
  std::size_t offset = 0;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    const std::size_t bytes = layout.views[v].bytes_per_token * kBlockTokens;
    HF_CUDA_RETURN_IF_ERROR(
        AddContentSums(stream_.get(),
                       reinterpret_cast<const std::byte* const*>(table),
                       static_cast<int>(blocks.size()), offset, bytes,
                       results_.as<unsigned long long>() + 2 * v),
        "content sums");
    offset += bytes;
  }
  Read(results_.data(), sum_bytes, sums.data());
  HF_RETURN_IF_ERROR(Synchronize());
  return sums;
}

}  // namespace holdfast::kernels::cuda
