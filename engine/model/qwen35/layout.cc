#include "engine/model/qwen35/layout.h"

#include <cstdint>

#include "engine/model/model.h"

namespace holdfast::model {

Qwen35Layout MakeQwen35Layout(const Qwen35Config& config,
                              kernels::StateType state_type) {
  Qwen35Layout layout;
  layout.kv.layers = config.attention_layers();
  layout.kv.kv_heads = config.kv_heads;
  layout.kv.head_dim = config.head_dim;
  layout.kv.state_type = state_type;
  layout.gdn.key_heads = config.key_heads;
  layout.gdn.value_heads = config.value_heads;
  layout.gdn.key_dim = config.key_dim;
  layout.gdn.value_dim = config.value_dim;
  layout.gdn.heads = kernels::GdnHeads::kTiled;
  layout.gdn.state_type = state_type;

  const auto layers = static_cast<std::uint32_t>(layout.kv.layers);
  const std::uint64_t bytes = layout.kv.TokenBytes() * layers;
  layout.cache.views = {{"K", bytes, layers}, {"V", bytes, layers}};
  const auto gdn_layers = static_cast<std::uint64_t>(config.gdn_layers());
  layout.cache.sections = {
      {kGdnState, gdn_layers * layout.gdn.StateBytes()},
      {kGdnConv, gdn_layers * layout.gdn.TailBytes()},
      {kHLast, static_cast<std::uint64_t>(config.hidden) * sizeof(float)}};
  const SectionOffsets offsets = ComputeSectionOffsets(layout.cache);
  layout.state_offset = offsets.offsets[0];
  layout.tail_offset = offsets.offsets[1];
  layout.h_last_offset = offsets.offsets[2];
  return layout;
}

}  // namespace holdfast::model
