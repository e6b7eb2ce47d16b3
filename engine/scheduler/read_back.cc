#include "engine/scheduler/read_back.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "shared/aligned_buffer.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

milliseconds Milliseconds(double seconds) {
  return duration_cast<milliseconds>(duration<double>(seconds));
}

// One conversation on its way into the pool.
class Reader {
 public:
  Reader(EngineState& state, const KeptResident& kept,
         const std::function<bool()>& stop)
      : state_(state),
        kept_(kept),
        stop_(stop),
        image_(StateImageBytes(state.model.layout())),
        sequence_(&state.pool, BlockTable::Kind::kPooled, kept.root,
                  state.section_buffers.Take()) {}

  absl::Status Read() {
    if (sequence_.sections == nullptr) {
      return absl::ResourceExhaustedError("no memory for its sections");
    }
    const int rows = kept_.candidate.position;
    if (rows > state_.options.max_context) {
      return absl::ResourceExhaustedError("longer than the context");
    }
    while (sequence_.table.size() * kBlockTokens < rows) {
      if (!sequence_.table.Append()) {
        return absl::ResourceExhaustedError("no blocks for its rows");
      }
    }
    if (auto s = Restore(rows, /*have=*/0); !s.ok()) return s;
    if (auto s = ReadStateImage(state_.model.layout(), image_.span(),
                                state_.backend, sequence_.sections.get());
        !s.ok()) {
      return s;
    }
    sequence_.ids = kept_.ids;
    sequence_.state_rows = rows;
    sequence_.session_key = kept_.session_key;
    sequence_.prompt_tokens = rows;
    if (kept_.candidate.taint < rows) {
      sequence_.taint = kept_.candidate.taint;
      sequence_.table.MarkSession(sequence_.taint / kBlockTokens);
    }
    // Rows alone are enough for a model without recurrent state.
    if (state_.model.layout().Recurrent()) ReadAnchors();
    return absl::OkStatus();
  }

  Sequence Take() { return std::move(sequence_); }

 private:
  void ReadAnchors() {
    const SectionBuffers::Buffer sections = state_.section_buffers.Take();
    if (sections == nullptr) return;
    for (const int message : kept_.messages) {
      if (!ReadAnchor(message, AnchorKind::kMessage, message == kept_.turn,
                      sections.get())) {
        return;
      }
    }
    for (const int line : kept_.lines) {
      if (!ReadAnchor(line, AnchorKind::kLine, false, sections.get())) return;
    }
  }

  bool ReadAnchor(int position, AnchorKind kind, bool turn,
                  std::byte* sections) {
    if (sequence_.ProvenanceAt(position) != Provenance::kGrid) return true;
    // All rows are there: the state alone is read, and the block that the
    // position is in once more.
    if (!Restore(position, /*have=*/position).ok() ||
        !ReadStateImage(state_.model.layout(), image_.span(), state_.backend,
                        sections)
             .ok()) {
      return false;
    }
    AnchorRef anchor =
        state_.anchor_slots.Take(position, kind, Provenance::kGrid, sections,
                                 RetentionClass::kResident, turn);
    if (anchor == nullptr) return false;
    InsertAnchor(sequence_.anchors, std::move(anchor));
    return true;
  }

  absl::Status Restore(int position, int have) {
    const PlannerCosts& costs = state_.tiering->costs;
    TierCandidate candidate = kept_.candidate;
    candidate.position = position;
    const std::uint64_t bytes = candidate.bytes;
    const int blocks = (position + kBlockTokens - 1) / kBlockTokens;
    return RestoreAndWait(
        state_.tiering->tiers,
        {.candidate = candidate,
         .ids = kept_.ids,
         .target = {.blocks = {sequence_.table.pointers(),
                               static_cast<std::size_t>(blocks)},
                    .block_bytes = state_.pool.block_bytes(),
                    .have_tokens = have,
                    .state_image = image_.span(),
                    .backend =
                        state_.pool.host_memory() ? nullptr : &state_.backend},
         .deadline = deadlines::Restore(
             Milliseconds(costs.ReadSeconds(candidate.tier, bytes)),
             Milliseconds(costs.PrefillSeconds(0, position))),
         .touch = false,
         .stop = stop_});
  }

  EngineState& state_;
  const KeptResident& kept_;
  const std::function<bool()>& stop_;
  AlignedBuffer image_;
  Sequence sequence_;
};

// Whether the seat has it now.
bool ReadOne(EngineState& state, const KeptResident& kept,
             const std::function<bool()>& stop, Seat& seat) {
  const auto start = steady_clock::now();
  Reader reader(state, kept, stop);
  const absl::Status status = reader.Read();
  const double seconds = duration<double>(steady_clock::now() - start).count();
  spdlog::info("read back tier={} rows={} bytes={} ms={:.1f} status=\"{}\"",
               TierName(kept.candidate.tier), kept.candidate.position,
               kept.candidate.bytes, 1000 * seconds,
               status.ok() ? "ok" : status.ToString());
  if (!status.ok()) return false;
  TierCounters::OfTier& count = state.tiering->counters->of(Tier::kSpill);
  ++count.restores;
  count.tokens += static_cast<std::uint64_t>(kept.candidate.position);
  count.bytes += kept.candidate.bytes;
  count.microseconds += static_cast<std::uint64_t>(1e6 * seconds);
  state.tiering->costs.MeasuredRead(Tier::kSpill, kept.candidate.bytes,
                                    seconds);
  Sequence sequence = reader.Take();
  PublishBlocks(state.pool, state.rule, sequence);
  state.unclaimed.Add(sequence.root, sequence.ids);
  seat.resident = std::move(sequence);
  return true;
}

}  // namespace

void ReadBackResidents(EngineState& state, const std::function<bool()>& stop) {
  const std::vector<KeptResident> kept = state.tiering->tiers.Residents();
  std::vector<Seat*> read;
  for (const KeptResident& resident : kept) {
    if (read.size() == state.seats.size()) break;
    Seat& seat = state.seats[read.size()];
    if (ReadOne(state, resident, stop, seat)) read.push_back(&seat);
  }
  for (std::size_t i = read.size(); i-- > 0;) {
    read[i]->last_use = state.NextUse();
  }
}

}  // namespace holdfast::engine
