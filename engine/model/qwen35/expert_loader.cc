// The experts of a layer.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/message.h"
#include "engine/model/qwen35/layer_loader.h"

namespace holdfast::model {

using kernels::Status;
using kernels::StatusOr;
using kernels::WeightTensor;

StatusOr<std::unique_ptr<Qwen35Experts>> Qwen35LayerLoader::LoadExperts(
    const std::string& prefix) {
  auto experts = std::make_unique<Qwen35Experts>();
  HF_RETURN_IF_ERROR(LoadRouter(prefix, experts.get()));
  // A format knows one of the two, or which it is shows in the file.
  const bool one_by_one =
      names_.expert_prefix != nullptr &&
      !packer_.tensors().Has(prefix + names_.experts_gate_up);
  if (one_by_one) {
    for (int e = 0; e < config_.experts; ++e) {
      const std::string of = Message(prefix, names_.expert_prefix, e);
      HF_ASSIGN_OR_RETURN(
          Qwen35FeedForward expert,
          LoadFeedForward(of + names_.expert_gate, of + names_.expert_up,
                          of + names_.expert_down, config_.expert_ffn));
      experts->experts.push_back(std::move(expert));
    }
  } else {
    HF_RETURN_IF_ERROR(LoadStackedExperts(prefix, experts.get()));
  }
  HF_ASSIGN_OR_RETURN(
      experts->shared,
      LoadFeedForward(prefix + names_.shared_gate, prefix + names_.shared_up,
                      prefix + names_.shared_down, config_.shared_ffn));
  for (const Qwen35FeedForward& expert : experts->experts) {
    experts->views.push_back({expert.gate_up.get(), expert.down.get()});
  }
  return experts;
}

Status Qwen35LayerLoader::LoadRouter(const std::string& prefix,
                                     Qwen35Experts* experts) {
  TensorMap& tensors = packer_.tensors();
  std::array<WeightTensor, 2> parts;
  HF_ASSIGN_OR_RETURN(
      parts[0], tensors.TakeMatrix(prefix + names_.router, config_.experts,
                                   config_.hidden));
  HF_ASSIGN_OR_RETURN(
      parts[1],
      tensors.TakeMatrix(prefix + names_.shared_router, 1, config_.hidden));
  HF_ASSIGN_OR_RETURN(experts->router, packer_.Pack(parts));
  return kernels::OkStatus();
}

Status Qwen35LayerLoader::LoadStackedExperts(const std::string& prefix,
                                             Qwen35Experts* experts) {
  const std::int64_t count = config_.experts;
  const std::int64_t ffn = config_.expert_ffn;
  const std::int64_t hidden = config_.hidden;
  const auto take = [&](const char* name, std::int64_t rows,
                        std::int64_t cols) {
    return packer_.tensors().TakeShaped(prefix + name,
                                        std::array{count, rows, cols});
  };
  std::vector<WeightTensor> inputs;
  if (names_.experts_gate_up != nullptr) {
    HF_ASSIGN_OR_RETURN(WeightTensor gate_up,
                        take(names_.experts_gate_up, 2 * ffn, hidden));
    inputs = {std::move(gate_up)};
  } else {
    HF_ASSIGN_OR_RETURN(WeightTensor gate,
                        take(names_.experts_gate, ffn, hidden));
    HF_ASSIGN_OR_RETURN(WeightTensor up, take(names_.experts_up, ffn, hidden));
    inputs = {std::move(gate), std::move(up)};
  }
  HF_ASSIGN_OR_RETURN(const WeightTensor down,
                      take(names_.experts_down, hidden, ffn));
  const auto slice = [&](const WeightTensor& all, std::int64_t index) {
    WeightTensor one = all;
    one.rows = all.rows / count;
    one.data += index * one.rows * kernels::WeightRowBytes(all.type, all.cols);
    return one;
  };
  for (std::int64_t e = 0; e < count; ++e) {
    Qwen35FeedForward expert;
    std::vector<WeightTensor> parts;
    for (const WeightTensor& input : inputs) parts.push_back(slice(input, e));
    HF_ASSIGN_OR_RETURN(expert.gate_up, packer_.Pack(parts));
    const WeightTensor output = slice(down, e);
    HF_ASSIGN_OR_RETURN(expert.down, packer_.Pack({&output, 1}));
    experts->experts.push_back(std::move(expert));
  }
  return kernels::OkStatus();
}

}  // namespace holdfast::model
