#include "engine/model/qwen35/layer_loader.h"

#include <array>
#include <cstddef>
#include <utility>

#include "engine/model/message.h"
#include "kernels/portable_math.h"

namespace holdfast::model {
namespace {

using kernels::Buffer;
using kernels::Status;
using kernels::StatusOr;
using kernels::WeightTensor;

}  // namespace

Qwen35LayerLoader::Qwen35LayerLoader(const Qwen35Config& config,
                                     const Qwen35Names& names,
                                     WeightPacker* packer)
    : config_(config),
      names_(names),
      packer_(*packer),
      orders_(MakeGdnRowOrders(config, names.gdn_order)),
      query_gate_order_(QueryGateOrder(config)) {}

StatusOr<Qwen35Layer> Qwen35LayerLoader::Load(const std::string& prefix,
                                              bool attention, bool sparse) {
  Qwen35Layer layer;
  HF_ASSIGN_OR_RETURN(layer.input_norm,
                      LoadNorm(prefix + names_.input_norm, config_.hidden));
  if (attention) {
    HF_ASSIGN_OR_RETURN(layer.attention, LoadAttention(prefix));
  } else {
    HF_ASSIGN_OR_RETURN(layer.gdn, LoadGdn(prefix));
  }
  HF_ASSIGN_OR_RETURN(layer.post_norm,
                      LoadNorm(prefix + names_.post_norm, config_.hidden));
  if (sparse) {
    HF_ASSIGN_OR_RETURN(layer.experts, LoadExperts(prefix));
  } else {
    HF_ASSIGN_OR_RETURN(
        layer.dense, LoadFeedForward(prefix + names_.gate, prefix + names_.up,
                                     prefix + names_.down, config_.ffn));
  }
  return layer;
}

StatusOr<std::vector<float>> Qwen35LayerLoader::Floats(
    const std::string& name, std::vector<std::int64_t> shape,
    const std::vector<std::int32_t>& order) {
  HF_ASSIGN_OR_RETURN(WeightTensor tensor,
                      packer_.tensors().TakeShaped(name, shape));
  // Numbers one by one, so that an order can name each.
  tensor.rows *= tensor.cols;
  tensor.cols = 1;
  tensor.row_order = order;
  std::vector<float> values;
  HF_RETURN_IF_ERROR(AppendFloats(packer_.tensors().source(), tensor, &values));
  return values;
}

StatusOr<std::unique_ptr<Buffer>> Qwen35LayerLoader::LoadNorm(
    const std::string& name, std::int64_t size) {
  HF_ASSIGN_OR_RETURN(std::vector<float> values, Floats(name, {size}, {}));
  if (names_.reference_form()) {
    for (float& value : values) value += 1.0f;
  }
  return packer_.UploadFloats(name, values);
}

StatusOr<std::unique_ptr<Qwen35Attention>> Qwen35LayerLoader::LoadAttention(
    const std::string& prefix) {
  const std::int64_t q = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv = std::int64_t{config_.kv_heads} * config_.head_dim;
  TensorMap& tensors = packer_.tensors();
  auto attention = std::make_unique<Qwen35Attention>();
  std::array<WeightTensor, 3> parts;
  HF_ASSIGN_OR_RETURN(
      parts[0], tensors.TakeMatrix(prefix + names_.q, 2 * q, config_.hidden));
  HF_ASSIGN_OR_RETURN(
      parts[1], tensors.TakeMatrix(prefix + names_.k, kv, config_.hidden));
  HF_ASSIGN_OR_RETURN(
      parts[2], tensors.TakeMatrix(prefix + names_.v, kv, config_.hidden));
  parts[0].row_order = query_gate_order_;
  HF_ASSIGN_OR_RETURN(attention->input, packer_.Pack(parts));
  HF_ASSIGN_OR_RETURN(attention->q_norm,
                      LoadNorm(prefix + names_.q_norm, config_.head_dim));
  HF_ASSIGN_OR_RETURN(attention->k_norm,
                      LoadNorm(prefix + names_.k_norm, config_.head_dim));
  HF_ASSIGN_OR_RETURN(
      attention->output,
      packer_.PackMatrix(prefix + names_.output, config_.hidden, q));
  return attention;
}

StatusOr<std::unique_ptr<Qwen35Gdn>> Qwen35LayerLoader::LoadGdn(
    const std::string& prefix) {
  auto gdn = std::make_unique<Qwen35Gdn>();
  HF_RETURN_IF_ERROR(LoadGdnInput(prefix, gdn.get()));
  HF_RETURN_IF_ERROR(LoadGdnVectors(prefix, gdn.get()));
  const std::int64_t values =
      std::int64_t{config_.value_heads} * config_.value_dim;
  TensorMap& tensors = packer_.tensors();
  HF_ASSIGN_OR_RETURN(
      WeightTensor output,
      tensors.TakeMatrix(prefix + names_.gdn_output, config_.hidden, values));
  std::vector<std::byte> storage;
  if (names_.gdn_order != GdnFileOrder::kTiled) {
    HF_RETURN_IF_ERROR(
        TileColumns(config_, tensors.source(), &output, &storage));
  }
  HF_ASSIGN_OR_RETURN(gdn->output, packer_.Pack({&output, 1}));
  return gdn;
}

Status Qwen35LayerLoader::LoadGdnInput(const std::string& prefix,
                                       Qwen35Gdn* gdn) {
  const std::int64_t keys = std::int64_t{config_.key_heads} * config_.key_dim;
  const std::int64_t values =
      std::int64_t{config_.value_heads} * config_.value_dim;
  const std::int64_t heads = config_.value_heads;
  struct Part {
    const char* name;
    std::int64_t rows;
    const std::vector<std::int32_t>* order;
  };
  std::vector<Part> wanted;
  if (names_.gdn_order == GdnFileOrder::kFused) {
    wanted = {{names_.qkv, 2 * keys + 2 * values, &orders_.qkv},
              {names_.b, 2 * heads, &orders_.b_and_a}};
  } else {
    wanted = {{names_.qkv, 2 * keys + values, &orders_.qkv},
              {names_.z, values, &orders_.z},
              {names_.b, heads, &orders_.b_and_a},
              {names_.a, heads, &orders_.b_and_a}};
  }
  std::vector<WeightTensor> parts;
  for (const Part& part : wanted) {
    HF_ASSIGN_OR_RETURN(WeightTensor tensor,
                        packer_.tensors().TakeMatrix(
                            prefix + part.name, part.rows, config_.hidden));
    tensor.row_order = *part.order;
    parts.push_back(std::move(tensor));
  }
  HF_ASSIGN_OR_RETURN(gdn->input, packer_.Pack(parts));
  return kernels::OkStatus();
}

Status Qwen35LayerLoader::LoadGdnVectors(const std::string& prefix,
                                         Qwen35Gdn* gdn) {
  const std::int64_t heads = config_.value_heads;
  const std::string decay_name = prefix + names_.decay;
  HF_ASSIGN_OR_RETURN(std::vector<float> decay,
                      Floats(decay_name, {heads}, orders_.heads));
  for (float& rate : decay) {
    // Past these a state would grow, or its decay be no float.
    constexpr float kLargestLog = 80;
    const bool wrong = names_.reference_form()
                           ? !(rate >= -kLargestLog && rate <= kLargestLog)
                           : !(rate <= 0);
    if (wrong) {
      return kernels::InvalidArgument(
          Message(packer_.tensors().source(), ": tensor ", decay_name,
                  " holds ", rate, ", which gives no decay"));
    }
    if (names_.reference_form()) {
      rate = -static_cast<float>(kernels::portable::Exp(rate));
    }
  }
  HF_ASSIGN_OR_RETURN(gdn->decay_rate, packer_.UploadFloats(decay_name, decay));
  const std::string dt_name = prefix + names_.dt_bias;
  HF_ASSIGN_OR_RETURN(const std::vector<float> dt_bias,
                      Floats(dt_name, {heads}, orders_.heads));
  HF_ASSIGN_OR_RETURN(gdn->dt_bias, packer_.UploadFloats(dt_name, dt_bias));
  HF_ASSIGN_OR_RETURN(gdn->norm, packer_.UploadVector(prefix + names_.gdn_norm,
                                                      config_.value_dim));

  const int channels = 2 * config_.key_heads * config_.key_dim +
                       config_.value_heads * config_.value_dim;
  std::vector<std::int32_t> order;
  for (int tap = 0; tap < kernels::kConvTaps; ++tap) {
    for (int c = 0; c < channels; ++c) {
      const int row = orders_.channels.empty() ? c : orders_.channels[c];
      order.push_back(row * kernels::kConvTaps + tap);
    }
  }
  std::vector<std::int64_t> shape = {channels, 1, kernels::kConvTaps};
  if (!names_.reference_form()) shape = {channels, kernels::kConvTaps};
  const std::string conv_name = prefix + names_.conv;
  HF_ASSIGN_OR_RETURN(const std::vector<float> conv,
                      Floats(conv_name, shape, order));
  HF_ASSIGN_OR_RETURN(gdn->conv, packer_.UploadFloats(conv_name, conv));
  return kernels::OkStatus();
}

StatusOr<Qwen35FeedForward> Qwen35LayerLoader::LoadFeedForward(
    const std::string& gate, const std::string& up, const std::string& down,
    std::int64_t ffn) {
  TensorMap& tensors = packer_.tensors();
  Qwen35FeedForward result;
  std::array<WeightTensor, 2> parts;
  HF_ASSIGN_OR_RETURN(parts[0], tensors.TakeMatrix(gate, ffn, config_.hidden));
  HF_ASSIGN_OR_RETURN(parts[1], tensors.TakeMatrix(up, ffn, config_.hidden));
  HF_ASSIGN_OR_RETURN(result.gate_up, packer_.Pack(parts));
  HF_ASSIGN_OR_RETURN(result.down,
                      packer_.PackMatrix(down, config_.hidden, ffn));
  return result;
}

}  // namespace holdfast::model
