#include "engine/scheduler/engine_state.h"

#include "engine/scheduler/session_spill.h"
#include "shared/cache_layout.h"
#include "shared/check.h"

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
      section_buffers(backend,
                      model::ComputeSectionOffsets(model.layout()).bytes),
      h_last_offset(SectionStart(model.layout(), kHLast)),
      h_last_floats(SectionFloats(model.layout(), kHLast)),
      h_last(h_last_floats),
      rule(backend.info().exactness,
           static_cast<int>(model.layout().grid_tokens)),
      token_bytes(tokenizer),
      anchor_slots(&section_buffers,
                   AnchorSlotsFor(options.anchor_bytes,
                                  section_buffers.section_bytes())),
      pool(pool_memory, model.layout().BlockBytes(), blocks, SteadyClock(),
           backend.info().host_memory),
      retained(pool, anchor_slots,
               {.grid = rule, .recurrent = model.layout().Recurrent()},
               options.retention),
      seats(options.seats),
      sampler(model.info().vocab_size),
      step_size(options.max_rows, static_cast<int>(model.layout().grid_tokens),
                rule.any_split() ? StepSize::Steps::kTimed
                                 : StepSize::Steps::kChunks) {
  HF_CHECK(rule.any_split() ||
           options.max_rows >= static_cast<int>(model.layout().grid_tokens));
  retained.OnLoss(
      [this](const Sequence& sequence) { SpillBeforeLoss(*this, sequence); });
}

int EngineState::DecodeRowsTogether() const {
  return rule.any_split() ? options.max_rows : 1;
}

std::vector<const Sequence*> EngineState::Residents() const {
  std::vector<const Sequence*> residents;
  for (const Seat& seat : seats) {
    if (seat.resident) residents.push_back(&*seat.resident);
  }
  return residents;
}

Seat* EngineState::OldestResident(const Seat* except) {
  Seat* oldest = nullptr;
  for (Seat& seat : seats) {
    if (!seat.resident || &seat == except) continue;
    if (oldest == nullptr || seat.last_use < oldest->last_use) oldest = &seat;
  }
  return oldest;
}

int EngineState::Clear() {
  const int free = pool.counts().free;
  if (tiering != nullptr) {
    tiering->waiting.Clear();
    tiering->leases.RevokeAll();
  }
  for (Seat& seat : seats) seat.resident.reset();
  retained.Clear();
  records->Clear();
  unclaimed.Clear();
  pool.EvictAll();
  return pool.counts().free - free;
}

}  // namespace holdfast::engine
