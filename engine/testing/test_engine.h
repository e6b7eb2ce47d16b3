// An EngineState with everything it needs, run in the test's own thread.
#ifndef HOLDFAST_ENGINE_TESTING_TEST_ENGINE_H_
#define HOLDFAST_ENGINE_TESTING_TEST_ENGINE_H_

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "engine/model_status.h"
#include "engine/pool/block_table.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request_run.h"
#include "engine/testing/fake_model.h"
#include "engine/testing/recording_sink.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {

// `count` ids below `vocab`, different for each `seed`.
inline std::vector<std::int32_t> SomeIds(int count, int seed, int vocab = 250) {
  std::vector<std::int32_t> ids(count);
  for (int i = 0; i < count; ++i) {
    ids[i] =
        static_cast<std::int32_t>((i * 31LL + i / 7 + seed * 97LL) % vocab);
  }
  return ids;
}

template <typename T>
std::vector<T> Joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What lies in the backend's memory.
inline std::vector<std::byte> BytesOf(kernels::Backend& backend,
                                      const void* from, std::size_t bytes) {
  std::vector<std::byte> copy(bytes);
  backend.Read(from, bytes, copy.data());
  EXPECT_TRUE(backend.Synchronize().ok());
  return copy;
}

// A request with digests for `max_tokens` tokens, whatever they are.
inline Request MakeRequest(std::vector<std::int32_t> prompt,
                           int max_tokens = 4) {
  Request request;
  request.id = "test";
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.digest = true;
  return request;
}

// What a request did, as far as a client can see it.
struct Answer {
  Result result;
  std::vector<std::int32_t> ids;
  std::vector<OutputToken> tokens;
  std::vector<int> progress;
};

inline std::unique_ptr<EngineState> MakeState(
    model::Model& model, kernels::Backend& backend, std::byte* memory,
    int blocks, const TokenizerSpec& tokenizer, int max_rows = 512,
    int anchors = 32, const RetentionBudgets& kept = {}, int seats = 1,
    const MemoryLimits& limits = {}) {
  return std::make_unique<EngineState>(
      model, backend, memory, blocks, tokenizer,
      EngineState::Options{
          .fingerprint = {1, 2, 3},
          .eos_ids = {tokenizer.eos_ids.begin(), tokenizer.eos_ids.end()},
          .max_context =
              std::min(model.info().max_context, blocks * kBlockTokens),
          .max_rows = max_rows,
          .anchor_bytes =
              anchors * model::ComputeSectionOffsets(model.layout()).bytes,
          .seats = seats,
          .retention = kept,
          .memory = limits});
}

// `memory` starts with a pattern, so that rows never written are seen.
class TestEngine {
 public:
  TestEngine(model::Model& model, kernels::Backend& backend, int blocks,
             const TokenizerSpec& tokenizer = FakeTokenizer(),
             int max_rows = 512, int anchors = 32,
             const RetentionBudgets& kept = {})
      : memory_(*backend.Allocate(blocks * model.layout().BlockBytes())) {
    auto* const memory = static_cast<std::byte*>(memory_->data());
    const std::vector<std::byte> pattern(blocks * model.layout().BlockBytes(),
                                         std::byte{0xA5});
    EXPECT_TRUE(backend.Write(pattern.data(), pattern.size(), memory).ok());
    state_ = MakeState(model, backend, memory, blocks, tokenizer, max_rows,
                       anchors, kept);
  }

  Answer Run(
      const Request& request, RecordingSink& sink,
      std::function<bool()> stop = [] { return false; }) {
    Result result = RunUnchecked(request, sink, std::move(stop));
    CheckPool();
    CheckAnchors();
    return {std::move(result), sink.ids, sink.tokens, sink.progress};
  }
  Result RunUnchecked(
      const Request& request, RecordingSink& sink,
      std::function<bool()> stop = [] { return false; }) {
    RequestRun run(*state_, request, sink, std::move(stop));
    run.Start(seat(), 0);
    while (run.phase() != RequestRun::Phase::kEnded) {
      if (run.phase() == RequestRun::Phase::kRestoring) {
        run.RestoreStep();
      } else if (const Supply supply = run.Prepare(); supply != Supply::kHave) {
        // A wait ends with the deadline of a spill.
        if (supply == Supply::kNone) run.OutOfBlocks();
      } else if (run.phase() == RequestRun::Phase::kPrefill) {
        run.PrefillStep();
      } else {
        const model::SequenceRows row = run.DecodeRow();
        run.Decoded(ToAbslStatus(state_->model.Forward({&row, 1})));
      }
    }
    logits.assign(run.logits().begin(), run.logits().end());
    return run.Finish();
  }
  Answer Run(const Request& request) {
    RecordingSink sink;
    return Run(request, sink);
  }

  // Rows, sections and logits of a cold run in an engine of its own are what a
  // bypass computes.
  Answer Cold(Request request) {
    request.cache_mode = CacheMode::kBypass;
    return Run(request);
  }

  // Only residents and what is kept may hold blocks between requests.
  void CheckPool() {
    if (state_->tiering != nullptr) state_->tiering->leases.Collect({});
    std::vector<BlockId> held;
    std::vector<const Sequence*> all = state_->Residents();
    const std::vector<const Sequence*> kept = state_->retained.Sequences();
    all.insert(all.end(), kept.begin(), kept.end());
    for (const Sequence* sequence : all) {
      for (int i = 0; i < sequence->table.size(); ++i) {
        held.push_back(sequence->table.block(i));
      }
      CheckProvenance(*sequence);
    }
    const absl::Status status = state_->pool.CheckInvariants(held);
    EXPECT_TRUE(status.ok()) << status.message();
    const absl::Status budgets = state_->retained.CheckInvariants();
    EXPECT_TRUE(budgets.ok()) << budgets.message();
  }

  // Blocks and anchors say what the sequence's taint says.
  void CheckProvenance(const Sequence& sequence) {
    for (int i = 0; i < sequence.table.size(); ++i) {
      const int end = std::min((i + 1) * kBlockTokens, sequence.rows());
      EXPECT_EQ(state_->pool.provenance(sequence.table.block(i)),
                sequence.ProvenanceAt(end))
          << "block " << i;
    }
    for (const AnchorRef& anchor : sequence.anchors) {
      EXPECT_EQ(anchor->provenance, sequence.ProvenanceAt(anchor->position));
    }
  }

  // Each anchor has one holder, which has the rows below it.
  void CheckAnchors() {
    int held = 0;
    const auto check = [&held](const AnchorList& anchors, int rows) {
      int below = 0;
      for (const AnchorRef& anchor : anchors) {
        EXPECT_EQ(anchor.use_count(), 1);
        EXPECT_GT(anchor->position, below);
        EXPECT_LE(anchor->position, rows);
        below = anchor->position;
        ++held;
      }
    };
    for (const Sequence* resident : state_->Residents()) {
      check(resident->anchors, resident->rows());
    }
    const int of_residents = held;
    for (const Sequence* kept : state_->retained.Sequences()) {
      check(kept->anchors, kept->rows());
    }
    EXPECT_EQ(held, state_->anchor_slots.live());
    EXPECT_EQ(of_residents,
              state_->anchor_slots.live(RetentionClass::kResident));
    EXPECT_LE(of_residents, state_->anchor_slots.capacity());
  }

  // All that a request could change, as text.
  std::string Describe() const {
    std::string text = state_->pool.Describe();
    for (const Sequence* held : state_->Residents()) {
      const Sequence& resident = *held;
      text += "taint " + std::to_string(resident.taint) + " of " +
              resident.session_key + " ";
      text += "resident " + ToHex(resident.root);
      for (KeyId id : resident.ids) text += " " + std::to_string(id);
      for (int i = 0; i < resident.table.size(); ++i) {
        text += " b" + std::to_string(resident.table.block(i));
      }
      Sha256 sha;
      const auto update = [&](const std::byte* sections) {
        const auto bytes = BytesOf(state_->backend, sections,
                                   state_->section_buffers.section_bytes());
        sha.Update(bytes.data(), bytes.size());
      };
      update(resident.sections.get());
      for (const AnchorRef& anchor : resident.anchors) {
        update(anchor->sections);
        text += std::string(" ") + AnchorKindName(anchor->kind) + "@" +
                std::to_string(anchor->position);
      }
      text += " " + ToHex(sha.Finish());
    }
    text += state_->retained.Describe();
    // Rows: free blocks may hold anything.
    Sha256 rows;
    for (BlockId block = 0; block < state_->pool.blocks(); ++block) {
      if (IsFree(block)) continue;
      const auto bytes = BytesOf(state_->backend, state_->pool.data(block),
                                 state_->pool.block_bytes());
      rows.Update(bytes.data(), bytes.size());
    }
    return text + " rows " + ToHex(rows.Finish());
  }

  EngineState& state() { return *state_; }
  // The one that requests run on, and its conversation.
  Seat& seat() { return state_->seats.front(); }
  std::optional<Sequence>& resident() { return seat().resident; }

  std::vector<float> logits;  // of the last row forwarded

 private:
  bool IsFree(BlockId block) const {
    if (state_->pool.references(block) > 0) return false;
    const std::string name = "\n" + std::to_string(block) + " refs=0 use=";
    const std::string text = "\n" + state_->pool.Describe();
    const std::size_t at = text.find(name);
    const std::string line =
        text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    return line.find("key=") == std::string::npos;
  }

  std::unique_ptr<kernels::Buffer> memory_;
  std::unique_ptr<EngineState> state_;
};

// The outcome of a resumed request and of a cold one must be the same bits.
inline void ExpectSame(const Answer& warm, const Answer& cold) {
  EXPECT_EQ(warm.ids, cold.ids);
  ASSERT_TRUE(warm.result.digests && cold.result.digests);
  EXPECT_EQ(warm.result.digests->first_logits,
            cold.result.digests->first_logits);
  EXPECT_EQ(warm.result.digests->prompt_end, cold.result.digests->prompt_end);
  EXPECT_EQ(warm.result.digests->end, cold.result.digests->end);
  EXPECT_EQ(warm.result.reason, cold.result.reason);
}

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_TEST_ENGINE_H_
