// What a Qwen3.5-family model keeps of a sequence, from its configuration
// alone.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_LAYOUT_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_LAYOUT_H_

#include <cstddef>

#include "engine/model/qwen35/config.h"
#include "kernels/backend.h"
#include "shared/cache_layout.h"

namespace holdfast::model {

inline constexpr char kGdnState[] = "gdn.S";
inline constexpr char kGdnConv[] = "gdn.conv";

struct Qwen35Layout {
  // Views "K" and "V" (parts: attention layers). Sections "gdn.S" and
  // "gdn.conv", one gated delta net layer after the other, then "h_last": the
  // residual stream of the last row before the final norm, hidden floats.
  CacheLayout cache;
  kernels::KvShape kv;
  kernels::GdnShape gdn;
  // In a sequence's section buffer.
  std::size_t state_offset = 0;
  std::size_t tail_offset = 0;
  std::size_t h_last_offset = 0;

  // Of the index-th gated delta net layer.
  kernels::GdnPlace Place(int index) const {
    return {.tail = tail_offset + index * gdn.TailBytes(),
            .state = state_offset + index * gdn.StateBytes()};
  }
};

Qwen35Layout MakeQwen35Layout(const Qwen35Config& config,
                              kernels::StateType state_type);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_LAYOUT_H_
