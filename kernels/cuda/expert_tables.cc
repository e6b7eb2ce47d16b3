#include "kernels/cuda/expert_tables.h"

#include <utility>

#include "kernels/cuda/cuda_matrix.h"

namespace holdfast::kernels::cuda {

StatusOr<const ExpertLayer*> ExpertTables::Get(
    std::span<const ExpertWeights> experts) {
  const std::uint64_t id =
      static_cast<const CudaMatrix*>(experts[0].gate_up)->id();
  const auto it = layers_.find(id);
  if (it != layers_.end()) return &it->second;
  ExpertLayer layer;
  HF_ASSIGN_OR_RETURN(layer.gate_up, Upload(experts, &ExpertWeights::gate_up));
  HF_ASSIGN_OR_RETURN(layer.down, Upload(experts, &ExpertWeights::down));
  return &layers_.emplace(id, std::move(layer)).first->second;
}

std::size_t ExpertTables::bytes() const {
  std::size_t bytes = 0;
  for (const DeviceMemory& memory : memory_) bytes += memory.bytes();
  return bytes;
}

StatusOr<std::vector<ExpertPart>> ExpertTables::Upload(
    std::span<const ExpertWeights> experts,
    const Matrix* ExpertWeights::*member) {
  const auto parts_of = [&](const ExpertWeights& expert) -> const auto& {
    return static_cast<const CudaMatrix*>(expert.*member)->parts();
  };
  const auto& first = parts_of(experts[0]);
  std::vector<ExpertPart> parts;
  for (std::size_t p = 0; p < first.size(); ++p) {
    std::vector<WeightView> views;
    for (const ExpertWeights& expert : experts) {
      const auto& mine = parts_of(expert);
      if (mine.size() != first.size() ||
          mine[p].view.type != first[p].view.type ||
          mine[p].view.rows != first[p].view.rows) {
        return Unimplemented(
            "experts of one layer whose weights differ in type or shape");
      }
      views.push_back(mine[p].view);
    }
    const std::size_t bytes = views.size() * sizeof(WeightView);
    HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                        DeviceMemory::Make(bytes, "a table of experts"));
    HF_RETURN_IF_ERROR(
        CopyToDevice(memory.data(), views.data(), bytes, "a table of experts"));
    parts.push_back({memory.as<const WeightView>(), first[p].view.type,
                     first[p].view.rows, first[p].view.cols,
                     first[p].first_column});
    memory_.push_back(std::move(memory));
  }
  return parts;
}

}  // namespace holdfast::kernels::cuda
