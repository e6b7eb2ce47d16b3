#include "engine/scheduler/engine_state.h"

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

std::size_t SectionStart(const CacheLayout& layout, const char* name) {
  const auto places = model::ComputeSectionOffsets(layout);
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    if (layout.sections[i].name == name) return places.offsets[i];
  }
  return 0;
}

std::size_t SectionFloats(const CacheLayout& layout, const char* name) {
  for (const Section& section : layout.sections) {
    if (section.name == name) return section.bytes / sizeof(float);
  }
  return 0;
}

}  // namespace

EngineState::EngineState(model::Model& model, kernels::Backend& backend,
                         std::byte* pool_memory, int blocks,
                         const TokenizerSpec& tokenizer, const Options& options)
    : model(model),
      backend(backend),
      options(options),
      section_buffers(model::ComputeSectionOffsets(model.layout()).bytes),
      h_last_offset(SectionStart(model.layout(), kHLast)),
      h_last_floats(SectionFloats(model.layout(), kHLast)),
      token_bytes(tokenizer),
      anchor_slots(&section_buffers,
                   AnchorSlotsFor(options.anchor_bytes,
                                  section_buffers.section_bytes())),
      pool(pool_memory, model.layout().BlockBytes(), blocks),
      sampler(model.info().vocab_size),
      step_size(options.max_rows, static_cast<int>(model.layout().grid_tokens)),
      logits(model.info().vocab_size) {
  pool.OnEviction([this](const PrefixKey& key, int depth) {
    anchors_dropped.rows += remnants.OnEviction(key, depth);
  });
}

void EngineState::RetireResident(const AnchorList& heir) {
  if (!resident) return;
  anchors_dropped.rows += remnants.Retire(pool, *resident, heir);
  resident.reset();
}

}  // namespace holdfast::engine
