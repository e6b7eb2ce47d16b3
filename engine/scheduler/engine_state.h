// What requests run on: the model, the pool and the work space of one step.
#ifndef HOLDFAST_ENGINE_SCHEDULER_ENGINE_STATE_H_
#define HOLDFAST_ENGINE_SCHEDULER_ENGINE_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/anchors/anchor_slots.h"
#include "engine/cache/doorbell.h"
#include "engine/cache/tiering.h"
#include "engine/drafting/drafter.h"
#include "engine/model/model.h"
#include "engine/output/token_bytes.h"
#include "engine/pool/block_pool.h"
#include "engine/records/session_records.h"
#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"
#include "engine/resume/unclaimed_rows.h"
#include "engine/retention/retained.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler/memory_gate.h"
#include "engine/scheduler/seat.h"
#include "engine/scheduler/step_size.h"
#include "kernels/backend.h"
#include "shared/sha256.h"

namespace holdfast::engine {

// Made before the engine thread starts and from then on used by it alone.
// Model, backend and pool memory outlive it.
struct EngineState {
  struct Options {
    Sha256Digest fingerprint{};
    std::vector<std::int32_t> eos_ids;
    int max_context = 0;  // tokens; fits the model and the pool
    int max_rows = 0;     // of one Forward; a whole chunk on a grid backend
    // For anchors: each takes a copy of a sequence's sections.
    std::uint64_t anchor_bytes = 0;
    int seats = 1;  // requests that can run at once
    RetentionBudgets retention = {};
    MemoryLimits memory = {};
  };
  // Anchors of residents given up, by why.
  struct Dropped {
    std::uint64_t budget = 0;  // for another one
    std::uint64_t rows = 0;    // the rows below went
  };

  // `pool_memory` holds `blocks` blocks of the model's layout.
  EngineState(model::Model& model, kernels::Backend& backend,
              std::byte* pool_memory, int blocks,
              const TokenizerSpec& tokenizer, const Options& options);
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  // How many sequences may decode in one Forward so that each row has the bits
  // that it has alone.
  int DecodeRowsTogether() const;
  // The residents of all seats.
  std::vector<const Sequence*> Residents() const;
  // The seat, but `except`, whose resident was kept longest ago; null: there is
  // none with one.
  Seat* OldestResident(const Seat* except);
  // A moment later than every one before.
  std::uint64_t NextUse() { return ++uses_; }
  // Forgets every conversation and cached prefix. Returns the blocks freed.
  int Clear();

  model::Model& model;
  kernels::Backend& backend;
  const Options options;
  // Of what sequences and anchors have their sections in.
  SectionBuffers section_buffers;
  const std::size_t h_last_offset;  // in a sequence's sections
  const std::size_t h_last_floats;  // 0: the model keeps none
  std::vector<float> h_last;        // of the last row forwarded
  const GridRule rule;
  const TokenBytes token_bytes;
  AnchorSlots anchor_slots;
  BlockPool pool;
  // Rings when the engine thread may get on.
  const std::shared_ptr<Doorbell> bell = std::make_shared<Doorbell>();
  // Null: there is no cache service to ask. Set before the first request.
  std::unique_ptr<Tiering> tiering;
  // Null, as the engine's program has it: nothing is guessed. Outlives the
  // state.
  Drafter* drafter = nullptr;
  Retained retained;  // of earlier residents and guests
  // As many as options say. After `pool`: they give their blocks back first.
  std::vector<Seat> seats;
  // Shared with those who answer gateways about them.
  const std::shared_ptr<SessionRecords> records =
      std::make_shared<SessionRecords>();
  // Of what was read back at start.
  UnclaimedRows unclaimed;
  // Of requests that run and leave a trace: others resume from their rows.
  std::vector<const Sequence*> running;
  Dropped anchors_dropped;
  // Guests for which a resident lost rows.
  std::uint64_t guest_overflows = 0;
  Sampler sampler;
  StepSize step_size;
  // Prompt rows forwarded since the start, step by step. Read by any thread.
  std::atomic<std::uint64_t> prefilled{0};
  std::atomic<std::uint64_t> generated{0};  // tokens

 private:
  std::uint64_t uses_ = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_ENGINE_STATE_H_
