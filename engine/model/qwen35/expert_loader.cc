// The experts of a layer. No GGUF architecture read here has them: their names
// are Hugging Face's.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

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
  const auto load = [&](const std::string& of, std::int64_t ffn) {
    return LoadFeedForward(of + "gate_proj.weight", of + "up_proj.weight",
                           of + "down_proj.weight", ffn);
  };
  if (packer_.tensors().Has(prefix + "mlp.experts.gate_up_proj")) {
    HF_RETURN_IF_ERROR(LoadFusedExperts(prefix, experts.get()));
  } else {
    for (int e = 0; e < config_.experts; ++e) {
      HF_ASSIGN_OR_RETURN(
          Qwen35FeedForward expert,
          load(Message(prefix, "mlp.experts.", e, "."), config_.expert_ffn));
      experts->experts.push_back(std::move(expert));
    }
  }
  HF_ASSIGN_OR_RETURN(experts->shared,
                      load(prefix + "mlp.shared_expert.", config_.shared_ffn));
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
      parts[0], tensors.TakeMatrix(prefix + "mlp.gate.weight", config_.experts,
                                   config_.hidden));
  HF_ASSIGN_OR_RETURN(
      parts[1], tensors.TakeMatrix(prefix + "mlp.shared_expert_gate.weight", 1,
                                   config_.hidden));
  HF_ASSIGN_OR_RETURN(experts->router, packer_.Pack(parts));
  return kernels::OkStatus();
}

// All experts' matrices in two tensors, slowest dimension the expert.
Status Qwen35LayerLoader::LoadFusedExperts(const std::string& prefix,
                                           Qwen35Experts* experts) {
  const std::int64_t count = config_.experts;
  const std::int64_t ffn = config_.expert_ffn;
  const std::int64_t hidden = config_.hidden;
  TensorMap& tensors = packer_.tensors();
  HF_ASSIGN_OR_RETURN(const WeightTensor gate_up,
                      tensors.TakeShaped(prefix + "mlp.experts.gate_up_proj",
                                         std::array{count, 2 * ffn, hidden}));
  HF_ASSIGN_OR_RETURN(const WeightTensor down,
                      tensors.TakeShaped(prefix + "mlp.experts.down_proj",
                                         std::array{count, hidden, ffn}));
  const auto slice = [&](const WeightTensor& all, std::int64_t index) {
    WeightTensor one = all;
    one.rows = all.rows / count;
    one.data += index * one.rows * kernels::WeightRowBytes(all.type, all.cols);
    return one;
  };
  for (std::int64_t e = 0; e < count; ++e) {
    Qwen35FeedForward expert;
    const WeightTensor parts[] = {slice(gate_up, e), slice(down, e)};
    HF_ASSIGN_OR_RETURN(expert.gate_up, packer_.Pack({&parts[0], 1}));
    HF_ASSIGN_OR_RETURN(expert.down, packer_.Pack({&parts[1], 1}));
    experts->experts.push_back(std::move(expert));
  }
  return kernels::OkStatus();
}

}  // namespace holdfast::model
