// Random traffic over one engine: next turns, edits, retries, the same prompt
// from several clients at once, guests, compactions, clients that go away in
// the middle, cleared caches, planned and unplanned stops, over small pools,
// budgets and tiers. Every answer has the bits that a cold run of its prompt
// gives, and what the engine keeps afterwards is what a cold run leaves behind
// the same rows. More seeds: --gtest_shuffle --gtest_repeat=N.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/scheduler/read_back.h"
#include "engine/scheduler/session_spill.h"
#include "engine/testing/loop_engine.h"
#include "engine/testing/scripted_drafter.h"
#include "engine/testing/tier_node.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "shared/aligned_buffer.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::BytesOf;
using testing::FakeTiers;
using testing::Joined;
using testing::LoopEngine;
using testing::LoopTierNode;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::ScriptedDrafter;
using testing::SomeIds;
using testing::Submitted;

constexpr int kGrid = 512;
constexpr int kContext = 3072;
constexpr int kRequests = 24;
constexpr int kMostWaiting = 8;

using Case = std::tuple<std::string, kernels::Exactness>;

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int Below(int n) { return static_cast<int>(random_() % n); }
  int In(int low, int high) { return low + Below(high - low + 1); }
  bool Chance(int percent) { return Below(100) < percent; }

 private:
  std::mt19937 random_;
};

// A model with its engine and tiers.
struct Engine {
  Engine(const std::string& path, kernels::Exactness exactness, int threads,
         const LoopEngine::Size& size, const Engine* before = nullptr)
      : backend(*kernels::MakeHostBackend(
            {.threads = threads, .exactness = exactness})),
        loaded(*model::LoadModel(path, *backend,
                                 {.state_type = kernels::StateType::kBF16,
                                  .max_rows = kGrid,
                                  .max_context = kContext,
                                  .grid_tokens = kGrid})),
        node(std::make_unique<LoopEngine>(*loaded.model, *backend, size,
                                          loaded.tokenizer),
             before != nullptr ? &before->node : nullptr) {}
  LoopEngine& loop() { return *node.engine; }
  int vocab() const { return loaded.model->info().vocab_size; }

  std::unique_ptr<kernels::Backend> backend;
  model::LoadedModel loaded;
  LoopTierNode node;
};

// What a client keeps of its conversation.
struct Talk {
  std::string key;
  std::string salt;
  std::vector<std::int32_t> ids = {};
  std::vector<int> messages = {};
  int turns = 0;
  bool busy = false;
};

struct Sent {
  Submitted submitted = {};
  Request request = {};
  int talk = 0;
  bool cancelled = false;
  bool moves_on = false;  // the client keeps the answer
};

class Traffic {
 public:
  Traffic(const std::string& path, kernels::Exactness exactness, unsigned seed)
      : path_(path), exactness_(exactness), dice_(seed) {
    crowded_ = dice_.Chance(40);
    size_ = {.blocks = crowded_ ? dice_.In(6, 10) : dice_.In(8, 28),
             .seats = dice_.In(crowded_ ? 3 : 1, 5),
             .max_rows = kGrid,
             .anchors = dice_.In(1, 24)};
    const auto some = [this] { return std::uint64_t{1} << dice_.In(10, 21); };
    size_.kept = {.guest_max_tokens = dice_.In(0, 1000),
                  .stash_bytes = some(),
                  .pin_bytes = some(),
                  .park_bytes = some(),
                  .spill_min_tokens = dice_.In(300, 3000)};
    tiers_ = dice_.Chance(70);
    cold_ = std::make_unique<Engine>(
        path, exactness, 1,
        LoopEngine::Size{.blocks = 16,
                         .seats = 1,
                         .max_rows = kGrid,
                         .kept = {.guest_max_tokens = 0,
                                  .stash_bytes = 0,
                                  .pin_bytes = 0,
                                  .park_bytes = 0,
                                  .spill_min_tokens = 1 << 30}});
    Begin(nullptr);
    for (int i = 0; i < 5; ++i) {
      talks_.push_back(
          {.key = dice_.Chance(80) ? "talk" + std::to_string(i) : std::string(),
           .salt = dice_.Chance(20) ? "salt" : ""});
    }
  }

  void Run(int requests) {
    for (int n = 0; n < requests && !::testing::Test::HasFailure(); ++n) {
      Submit();
      const int rounds = dice_.Chance(20) ? 10'000 : dice_.Below(40);
      Go(rounds);
      if (sent_.empty()) Quiet();
    }
    Go(LoopEngine::kGiveUp);
    CheckKept();
  }

 private:
  // -- engines

  void Begin(std::unique_ptr<Engine> before) {
    auto next =
        std::make_unique<Engine>(path_, exactness_, 2, size_, before.get());
    engine_ = std::move(next);
    EngineState& state = engine_->loop().state();
    FakeTiers& tiers = *engine_->node.tiers;
    if (!tiers_) tiers.outcome = TierLookup::Outcome::kDetached;
    tiers.hold = true;  // ReleaseStores looks at the leases
    slow_stores_ = dice_.Chance(40);
    tiers.store_entry_bytes = dice_.Chance(70) ? 1 << 22 : 1 << 16;
    tiers.admit = {kGrid, 2 * kGrid};
    tiers.on_stored = [this](const FakeTiers::Entry& e) { CheckStored(e); };
    tiers.store_line = dice_.Chance(50) ? kGrid : 0;
    if (dice_.Chance(50)) state.drafter = &drafter_;
    if (tiers_) ReadBackResidents(state, [] { return false; });
    tiers.hold_restores = dice_.Chance(50);
  }

  void Restart() {
    FakeTiers& tiers = *engine_->node.tiers;
    ReleaseStores(1000);
    tiers.hold = false;
    if (dice_.Chance(60)) engine_->node.Spill();
    Begin(std::move(engine_));
  }

  // -- requests

  std::vector<std::int32_t> Words(int count) {
    std::vector<std::int32_t> ids(count);
    for (auto& id : ids) id = dice_.Below(engine_->vocab());
    return ids;
  }
  std::vector<std::int32_t> Head() {
    return SomeIds(heads_[dice_.Below(2)], 7, engine_->vocab());
  }

  void NewTalk(Talk& talk) {
    talk.ids = dice_.Chance(70) ? Head() : std::vector<std::int32_t>();
    talk.messages.clear();
    talk.turns = 0;
  }
  void Say(Talk& talk, int count) {
    talk.messages.push_back(static_cast<int>(talk.ids.size()));
    talk.ids = Joined(talk.ids, Words(count));
    talk.messages.push_back(static_cast<int>(talk.ids.size()));
    talk.ids = Joined(talk.ids, Words(dice_.In(1, 4)));
  }
  bool Long(const Talk& talk) const {
    return static_cast<int>(talk.ids.size()) > LongestPrompt();
  }
  int LongestPrompt() const {
    return std::min(2000, (size_.blocks - 2) * kBlockTokens);
  }

  Request Make(Talk& talk) {
    Request request = MakeRequest(talk.ids, dice_.In(1, 80));
    request.session_key = talk.key;
    request.salt = talk.salt;
    for (const int at : talk.messages) {
      if (at > 0 && at < static_cast<int>(talk.ids.size())) {
        request.messages.push_back(at);
      }
    }
    if (!request.messages.empty()) {
      request.head = request.messages.front();
      request.turn = request.messages.back();
    }
    if (dice_.Chance(crowded_ ? 60 : 30)) {
      request.max_tokens = dice_.In(1, crowded_ ? 900 : 500);
    }
    // The cold engine's context is longer.
    const int room =
        size_.blocks * kBlockTokens - static_cast<int>(talk.ids.size());
    request.max_tokens = std::min(request.max_tokens, room);
    if (dice_.Chance(50)) {
      request.sampling.temperature = 1;
      request.sampling.seed = dice_.Below(1000);
      request.sampling.presence_penalty = 0.2;
    }
    if (dice_.Chance(15)) request.stop_strings = {"e", "th"};
    if (dice_.Chance(15)) {
      request.thinking = ThinkingLimit{.tokens = dice_.In(1, 12),
                                       .open = true,
                                       .open_tag = "<think>",
                                       .close_tag = "</think>",
                                       .close_id = 9,
                                       .words = {11, 12, 13, 9}};
    }
    if (dice_.Chance(8)) request.cache_mode = CacheMode::kReadOnly;
    if (dice_.Chance(5)) request.cache_mode = CacheMode::kBypass;
    return request;
  }

  void Submit() {
    const int n = dice_.Below(static_cast<int>(talks_.size()));
    Talk& talk = talks_[n];
    if (talk.busy) {
      // The client sends it again.
      for (const Sent& sent : sent_) {
        if (sent.talk == n) return Send(sent.request, n, false);
      }
    }
    const int what = dice_.Below(100);
    if (talk.ids.empty() || Long(talk) || what < 8) {
      if (what >= 4 || talk.ids.empty()) NewTalk(talk);
      Say(talk, dice_.In(20, crowded_ ? 500 : 900));
    } else if (what < 55) {
      Say(talk, dice_.In(5, 300));
    } else if (what < 65) {
      // An edit.
      const int at = dice_.In(1, static_cast<int>(talk.ids.size()));
      talk.ids.resize(at);
      std::erase_if(talk.messages, [at](int m) { return m > at; });
      Say(talk, dice_.In(5, 300));
    } else if (what < 75) {
      // As it was: a retry, or the answer goes on.
    } else {
      // Another request with the conversation's key: a title, a compaction.
      Talk other{.key = dice_.Chance(60) ? talk.key : "", .salt = talk.salt};
      if (dice_.Chance(30)) other.ids = Head();
      Say(other, dice_.Chance(60) ? dice_.In(5, 200) : dice_.In(200, 1500));
      if (Long(other)) return;
      return Send(Make(other), n, false);
    }
    if (Long(talk)) return;
    const Request request = Make(talk);
    const bool keeps = request.cache_mode == CacheMode::kDefault;
    Send(request, n, keeps);
    if (keeps) talk.busy = true;
    if (!dice_.Chance(15)) return;
    for (int i = dice_.In(1, 3); i > 0; --i) Send(request, n, false);
  }

  void Send(Request request, int talk, bool moves_on) {
    if (static_cast<int>(sent_.size()) > kMostWaiting) Go(10'000);
    if (exactness_ == kernels::Exactness::kRowInvariant) {
      drafter_.Know(request.prompt, Cold(request).ids);
    }
    Sent sent{
        .request = std::move(request), .talk = talk, .moves_on = moves_on};
    sent.submitted = engine_->loop().Submit(sent.request);
    if (dice_.Chance(5)) sent.submitted.sink->accepts = dice_.In(1, 30);
    sent_.push_back(std::move(sent));
  }

  // -- time

  void Go(int rounds) {
    for (int i = 0; i < rounds && !sent_.empty(); ++i) {
      engine_->loop().Round();
      Disturb();
      Collect();
      ASSERT_LT(i, 200'000) << "nothing ends";
    }
  }
  void Disturb() {
    FakeTiers& tiers = *engine_->node.tiers;
    if (tiers.restoring() > 0 && dice_.Chance(20)) {
      const absl::Status ends[] = {
          absl::OkStatus(),         absl::OkStatus(),
          absl::OkStatus(),         absl::DataLossError("x"),
          absl::NotFoundError("x"), absl::DeadlineExceededError("x")};
      tiers.EndRestore(ends[dice_.Below(6)]);
    }
    if (!slow_stores_) ReleaseStores(1000);
    if (dice_.Chance(20)) ReleaseStores(1);
    if (dice_.Chance(1) && dice_.Chance(30)) engine_->loop().state().Clear();
    if (!sent_.empty() && dice_.Below(1000) < 4) {
      Sent& sent = sent_[dice_.Below(static_cast<int>(sent_.size()))];
      sent.cancelled = true;
      engine_->loop().Cancel(sent.submitted);
    }
  }
  // Reads what was lent, or has come too late for it.
  void ReleaseStores(int most) {
    FakeTiers& tiers = *engine_->node.tiers;
    Leases& leases = engine_->loop().state().tiering->leases;
    while (most-- > 0 && !tiers.held.empty()) {
      auto [job, done] = std::move(tiers.held.front());
      tiers.held.erase(tiers.held.begin());
      const bool lasts = leases.Lasts(job.lease);
      if (lasts) tiers.Write(job);
      done(lasts ? StoreOutcome::kStored : StoreOutcome::kDropped);
    }
  }
  void Quiet() {
    ReleaseStores(1000);
    engine_->loop().Check();
    if (tiers_ && dice_.Chance(12)) Restart();
    FakeTiers& tiers = *engine_->node.tiers;
    if (tiers.entries.size() > 100) tiers.entries.clear();  // few names
  }

  // -- what is compared

  Answer Cold(Request request) {
    request.cache_mode = CacheMode::kBypass;
    return cold_->loop().Run(std::move(request));
  }
  void Collect() {
    for (std::size_t i = 0; i < sent_.size();) {
      if (!sent_[i].submitted.ended()) {
        ++i;
        continue;
      }
      const Sent sent = std::move(sent_[i]);
      sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
      Verify(sent);
      if (!sent.moves_on) continue;
      Talk& talk = talks_[sent.talk];
      talk.busy = false;
      ++talk.turns;
      if (dice_.Chance(85)) {
        talk.ids = Joined(talk.ids, sent.submitted.sink->ids);
      }
    }
  }
  void Verify(const Sent& sent) {
    ASSERT_FALSE(sent.submitted.sink->refusal());
    const Answer answer = sent.submitted.answer();
    const Result& result = answer.result;
    const CacheReport& cache = result.cache;
    SCOPED_TRACE(::testing::Message()
                 << "prompt " << sent.request.prompt.size() << " source "
                 << CacheSourceName(cache.source) << " at " << cache.resumed_at
                 << " computed " << cache.computed << " restored "
                 << cache.restored << " preempted " << result.preemptions
                 << " finish " << FinishReasonName(result.reason) << " "
                 << result.error << " mode "
                 << static_cast<int>(sent.request.cache_mode) << " tokens "
                 << answer.ids.size());
    const bool slow = sent.submitted.sink->accepts < 1000;
    if (result.reason == FinishReason::kError) {
      EXPECT_TRUE(slow) << result.error;
    }
    if (result.reason == FinishReason::kCancelled) {
      EXPECT_TRUE(sent.cancelled);
    }
    if (sent.submitted.sink->starts == 0) return;
    EXPECT_EQ(sent.submitted.sink->starts, 1);
    CheckCounts(cache, static_cast<int>(sent.request.prompt.size()));
    if (!result.as_cold) {
      EXPECT_EQ(exactness_, kernels::Exactness::kGrid);
      return;
    }
    const Answer cold = Cold(sent.request);
    EXPECT_EQ(result.digests->first_logits, cold.result.digests->first_logits);
    EXPECT_EQ(result.digests->prompt_end, cold.result.digests->prompt_end);
    if (result.reason == FinishReason::kCancelled ||
        result.reason == FinishReason::kError) {
      ASSERT_LE(answer.ids.size(), cold.ids.size());
      EXPECT_TRUE(
          std::equal(answer.ids.begin(), answer.ids.end(), cold.ids.begin()));
      return;
    }
    EXPECT_EQ(answer.ids, cold.ids);
    EXPECT_EQ(result.reason, cold.result.reason);
    EXPECT_EQ(result.digests->end, cold.result.digests->end);
  }
  static void CheckCounts(const CacheReport& cache, int prompt) {
    EXPECT_EQ(cache.resumed_at + cache.computed, prompt);
    int cached = 0;
    for (const auto& [source, rows] : CachedBySource(cache)) {
      EXPECT_GE(rows, 0);
      cached += rows;
    }
    EXPECT_EQ(cached, cache.resumed_at);
    EXPECT_EQ(cache.source == CacheSource::kNone, cache.resumed_at == 0);
    EXPECT_EQ(cache.miss == MissReason::kNone, cache.resumed_at > 0);
  }

  // Of what is kept: rows, the state behind the last and anchors.
  void CheckKept() {
    ReleaseStores(1000);
    engine_->loop().Check();
    EngineState& state = engine_->loop().state();
    std::vector<const Sequence*> all = state.Residents();
    for (const Sequence* kept : state.retained.Sequences()) all.push_back(kept);
    for (const Sequence* sequence : all) {
      if (::testing::Test::HasFailure()) return;
      CheckSequence(*sequence);
    }
  }
  void CheckSequence(const Sequence& sequence) {
    SCOPED_TRACE(::testing::Message()
                 << "kept rows " << sequence.rows() << " taint "
                 << sequence.taint << " end " << sequence.HasEnd());
    const auto clean = static_cast<int>(
        std::min<std::int64_t>(sequence.rows(), sequence.taint));
    // On a grid the rows of a chunk that is not whole are a cold run's up to
    // where its launch ended.
    const bool grid = exactness_ == kernels::Exactness::kGrid;
    int rows = clean;
    if (grid && clean < sequence.rows()) rows = clean / kGrid * kGrid;
    if (rows > 0) {
      Compare(sequence, rows,
              rows == sequence.rows() && sequence.HasEnd()
                  ? sequence.sections.get()
                  : nullptr);
    }
    for (const AnchorRef& anchor : sequence.anchors) {
      if (anchor->provenance == Provenance::kSession) continue;
      if (dice_.Chance(50))
        Compare(sequence, anchor->position, anchor->sections);
    }
  }
  // What was stored is a cold run's, as far as it says so.
  void CheckStored(const FakeTiers::Entry& entry) {
    if (entry.position > entry.taint || ::testing::Test::HasFailure()) return;
    SCOPED_TRACE(::testing::Message()
                 << "stored in " << TierName(entry.tier) << " at "
                 << entry.position << " kind " << static_cast<int>(entry.kind)
                 << " taint " << entry.taint);
    const Sequence& cold = Cold(entry.ids);
    const CacheLayout& layout = cold_->loaded.model->layout();
    AlignedBuffer image(StateImageBytes(layout));
    ASSERT_TRUE(WriteStateImage(layout, *cold_->backend, cold.sections.get(),
                                image.span())
                    .ok());
    EXPECT_TRUE(std::ranges::equal(image.span(), entry.image));
    const std::size_t bytes = cold_->loop().state().pool.block_bytes();
    for (int i = 0; i * kBlockTokens < entry.position; ++i) {
      const int here =
          std::min(kBlockTokens, entry.position - i * kBlockTokens);
      EXPECT_TRUE(RowBytes(*cold_, entry.rows.data() + i * bytes, here) ==
                  RowBytes(*cold_, cold.table.pointer(i), here))
          << "block " << i;
    }
  }
  // A cold run of these rows, until the next one.
  const Sequence& Cold(std::span<const KeyId> ids) {
    Request request = MakeRequest({ids.begin(), ids.end()}, 1);
    request.salt = "check" + std::to_string(checks_++);  // resumes nowhere
    (void)cold_->loop().Run(request);
    return *cold_->loop().state().seats[0].resident;
  }
  // With a cold run of so many rows. `sections`: none to compare.
  void Compare(const Sequence& sequence, int rows, const std::byte* sections) {
    SCOPED_TRACE(::testing::Message() << "rows " << rows);
    const Sequence& cold = Cold(std::span(sequence.ids).first(rows));
    ASSERT_EQ(cold.rows(), rows);
    if (sections != nullptr) {
      EXPECT_EQ(SectionBytes(*engine_, sections),
                SectionBytes(*cold_, cold.sections.get()));
    }
    for (int i = 0; i * kBlockTokens < rows; ++i) {
      const int here = std::min(kBlockTokens, rows - i * kBlockTokens);
      EXPECT_TRUE(RowBytes(*engine_, sequence.table.pointer(i), here) ==
                  RowBytes(*cold_, cold.table.pointer(i), here))
          << "block " << i;
    }
  }
  static std::vector<std::byte> SectionBytes(Engine& engine,
                                             const std::byte* from) {
    return BytesOf(*engine.backend, from,
                   engine.loop().state().section_buffers.section_bytes());
  }
  static std::vector<std::byte> RowBytes(Engine& engine, const std::byte* from,
                                         int rows) {
    const kernels::KvShape& shape = engine.loaded.model->kv_shape();
    const std::size_t bytes = engine.loop().state().pool.block_bytes();
    const auto memory = *engine.backend->Allocate(bytes);
    auto* const to = static_cast<std::byte*>(memory->data());
    std::memset(to, 0, bytes);
    engine.backend->CopyBlockRows(shape, from, rows, to);
    if (rows < kBlockTokens) engine.backend->ZeroBlockRows(shape, to, rows);
    return BytesOf(*engine.backend, to, bytes);
  }

  const std::string path_;
  const kernels::Exactness exactness_;
  Dice dice_;
  LoopEngine::Size size_;
  bool crowded_ = false;  // so that requests are put off
  bool tiers_ = false;
  bool slow_stores_ = false;
  const int heads_[2] = {300, 700};
  ScriptedDrafter drafter_{3};
  std::unique_ptr<Engine> cold_;
  std::unique_ptr<Engine> engine_;
  std::vector<Talk> talks_;
  std::vector<Sent> sent_;
  int checks_ = 0;
};

class TrafficExactTest : public ::testing::TestWithParam<Case> {};

TEST_P(TrafficExactTest, AnswersAndWhatIsKeptAreAColdRuns) {
  model::testing::TempFolder folder;
  const std::string path = folder.File("tiny.gguf");
  const auto options = *model::testing::TinyVariant(std::get<0>(GetParam()));
  ASSERT_TRUE(model::testing::WriteTinyGguf(options, path).ok());
  const auto first = static_cast<unsigned>(
      GTEST_FLAG_GET(shuffle)
          ? ::testing::UnitTest::GetInstance()->random_seed() * 10
          : 0);
  for (unsigned seed = first; seed < first + 3; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Traffic(path, std::get<1>(GetParam()), seed).Run(kRequests);
    if (HasFailure()) break;
  }
  spdlog::set_level(spdlog::level::info);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrafficExactTest,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-qwen35"),
                       ::testing::Values(kernels::Exactness::kRowInvariant,
                                         kernels::Exactness::kGrid)),
    [](const ::testing::TestParamInfo<Case>& info) {
      return std::string(std::get<0>(info.param) == "tiny-llama" ? "Llama"
                                                                 : "Hybrid") +
             (std::get<1>(info.param) == kernels::Exactness::kGrid ? "Grid"
                                                                   : "");
    });

}  // namespace
}  // namespace holdfast::engine
