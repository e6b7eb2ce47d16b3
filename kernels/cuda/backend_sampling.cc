// Tokens from logits.
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/sampling.h"

namespace holdfast::kernels::cuda {

StatusOr<std::vector<CudaBackend::Candidates>> BackendImpl::TopLogits(
    const float* logits, int rows, int vocab, const CandidateOptions& options) {
  const int count = options.count;
  const std::size_t each = std::size_t(rows) * std::max(count, 0);
  const std::size_t bytes =
      rows * sizeof(Kept) + each * (2 * sizeof(float) + sizeof(std::int32_t));
  if (rows < 1 || count < 1 || count > std::min(vocab, kMostCandidates) ||
      bytes > results_.bytes()) {
    return InvalidArgument("CUDA backend: " + std::to_string(count) +
                           " candidates of " + std::to_string(vocab) +
                           " in each of " + std::to_string(rows) + " rows");
  }
  auto* const kept = results_.as<Kept>();
  auto* const values = reinterpret_cast<float*>(kept + rows);
  float* const weights = values + each;
  auto* const ids = reinterpret_cast<std::int32_t*>(weights + each);
  const LogitRows from = {logits, rows, vocab};
  HF_CUDA_RETURN_IF_ERROR(
      TopCandidates(stream_.get(), from, count, ids, values), "TopCandidates");
  HF_CUDA_RETURN_IF_ERROR(
      KeepCandidates(stream_.get(), from, count, values,
                     {options.temperature, options.top_k, options.top_p},
                     weights, kept),
      "KeepCandidates");
  std::vector<std::byte> host(bytes);
  Read(results_.data(), bytes, host.data());
  HF_RETURN_IF_ERROR(Synchronize());
  std::vector<Candidates> result(rows);
  const std::byte* const floats = host.data() + rows * sizeof(Kept);
  for (int r = 0; r < rows; ++r) {
    Kept of_row;
    std::memcpy(&of_row, host.data() + r * sizeof(Kept), sizeof(Kept));
    Candidates& row = result[r];
    row.ids.resize(count);
    row.weights.resize(count);
    row.total = of_row.total;
    row.kept = of_row.short_of != 0 ? -1 : of_row.count;
    std::memcpy(row.weights.data(),
                floats + (each + std::size_t(r) * count) * sizeof(float),
                count * sizeof(float));
    std::memcpy(row.ids.data(),
                floats + (2 * each + std::size_t(r) * count) * sizeof(float),
                count * sizeof(std::int32_t));
  }
  return result;
}

}  // namespace holdfast::kernels::cuda
