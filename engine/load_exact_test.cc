// Same answers alone and under load: with 1, 4 and 8 seats over a pool of a
// fifth of what all contexts need, so that requests are preempted, every
// request has the bits that an engine of its own gives it. Generated models, in
// both exactness modes; and so has one that is read from the tiers while others
// decode. Compared: the logits behind the prompt and the whole
// state behind the last row (as digests), and the tokens.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/loop_engine.h"
#include "engine/testing/tier_node.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExpectSame;
using testing::FakeTiers;
using testing::Joined;
using testing::LoopEngine;
using testing::LoopTierNode;
using testing::MakeRequest;
using testing::SomeIds;
using testing::Submitted;

constexpr int kRows = 1024;
constexpr int kRequests = 8;

// A model and its engine.
struct Engine {
  Engine(const std::string& path, kernels::Exactness exactness,
         const LoopEngine::Size& size, int threads) {
    backend =
        *kernels::MakeHostBackend({.threads = threads, .exactness = exactness});
    loaded = *model::LoadModel(path, *backend,
                               {.state_type = kernels::StateType::kBF16,
                                .max_rows = kRows,
                                .max_context = 4096});
    loop = std::make_unique<LoopEngine>(*loaded.model, *backend, size,
                                        loaded.tokenizer);
  }
  std::unique_ptr<kernels::Backend> backend;
  model::LoadedModel loaded;
  std::unique_ptr<LoopEngine> loop;
};

using Case = std::tuple<std::string, kernels::Exactness>;

class LoadExactTest : public ::testing::TestWithParam<Case> {
 protected:
  LoadExactTest() : path_(folder_.File("tiny.gguf")) {
    const auto options = *model::testing::TinyVariant(std::get<0>(GetParam()));
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
  }
  std::unique_ptr<Engine> Make(const LoopEngine::Size& size, int threads) {
    return std::make_unique<Engine>(path_, std::get<1>(GetParam()), size,
                                    threads);
  }
  // Every other one begins with the same head.
  static Request Nth(int n, int vocab) {
    auto prompt = SomeIds(150 + 90 * n, n, vocab);
    if (n % 2 == 1) prompt = Joined(SomeIds(600, 77, vocab), prompt);
    Request request = MakeRequest(std::move(prompt), 90 + 10 * n);
    request.sampling.temperature = n % 3 == 0 ? 0 : 1;
    request.sampling.presence_penalty = 0.3;
    request.sampling.seed = 100 + n;
    request.session_key = std::to_string(n);
    return request;
  }

  model::testing::TempFolder folder_;
  std::string path_;
};

TEST_P(LoadExactTest, AnAnswerDoesNotDependOnTheLoad) {
  std::vector<Answer> alone;
  const auto single = Make({.blocks = 32, .seats = 1, .max_rows = kRows}, 1);
  const int vocab = single->loaded.model->info().vocab_size;
  for (int n = 0; n < kRequests; ++n) {
    Request request = Nth(n, vocab);
    request.salt = std::to_string(n);  // resumes nowhere
    alone.push_back(single->loop->Run(request));
    EXPECT_EQ(alone.back().result.cache.resumed_at, 0);
  }
  for (const int seats : {1, 4, 8}) {
    SCOPED_TRACE(seats);
    const auto loaded =
        Make({.blocks = 8, .seats = seats, .max_rows = kRows}, 2);
    std::vector<Submitted> all;
    for (int n = 0; n < kRequests; ++n) {
      all.push_back(loaded->loop->Submit(Nth(n, vocab)));
    }
    loaded->loop->RunAll();
    for (int n = 0; n < kRequests; ++n) {
      SCOPED_TRACE(n);
      ExpectSame(all[n].answer(), alone[n]);
    }
    EXPECT_EQ(loaded->loop->loop().counts().preemptions > 0, seats > 1);
    loaded->loop->Check();
  }
}

// The next turns go on at their conversations' ends, in rows that were decoded;
// then they are put off and lose some of them.
TEST_P(LoadExactTest, ATurnThatIsPutOffGoesOnAsItWouldHave) {
  constexpr int kTalks = 4;
  const auto first_turn = [](int n, int vocab) {
    Request request = MakeRequest(SomeIds(250 + 200 * n, n, vocab), 30);
    request.session_key = std::to_string(n);
    return request;
  };
  const auto next_turn = [](const Request& first, const Answer& answer, int n,
                            int vocab) {
    Request request = MakeRequest(Joined(Joined(first.prompt, answer.ids),
                                         SomeIds(120 + 40 * n, 50 + n, vocab)),
                                  400);
    request.session_key = first.session_key;
    return request;
  };
  const auto single = Make({.blocks = 64, .seats = 1, .max_rows = kRows}, 1);
  const auto loaded =
      Make({.blocks = 16, .seats = kTalks, .max_rows = kRows}, 2);
  const int vocab = single->loaded.model->info().vocab_size;
  std::vector<Answer> alone;
  std::vector<Submitted> firsts;
  std::vector<Submitted> all;
  for (int n = 0; n < kTalks; ++n) {
    const Request first = first_turn(n, vocab);
    const Answer answer = single->loop->Run(first);
    alone.push_back(single->loop->Run(next_turn(first, answer, n, vocab)));
    EXPECT_EQ(alone.back().result.cache.source, CacheSource::kEnd);
    firsts.push_back(loaded->loop->Submit(first));
  }
  loaded->loop->RunAll();
  for (int n = 0; n < kTalks; ++n) {
    all.push_back(loaded->loop->Submit(
        next_turn(first_turn(n, vocab), firsts[n].answer(), n, vocab)));
  }
  loaded->loop->RunAll();
  int recomputed = 0;
  for (int n = 0; n < kTalks; ++n) {
    SCOPED_TRACE(n);
    EXPECT_EQ(all[n].result().cache.source, CacheSource::kEnd);
    ExpectSame(all[n].answer(), alone[n]);
    recomputed += all[n].result().recomputed;
  }
  EXPECT_GT(loaded->loop->loop().counts().preemptions, 0u);
  EXPECT_GT(recomputed, 0);
  loaded->loop->Check();
}

// Next turns of conversations that an earlier engine left in the tiers, three
// in each; restores end late, and others decode meanwhile.
class TierLoadExactTest : public LoadExactTest {
 protected:
  static constexpr int kTalks = 9;

  static Tier TierOf(int n) { return static_cast<Tier>(n % kTiers); }
  static CacheSource SourceOf(int n) {
    constexpr CacheSource kSources[] = {CacheSource::kStore, CacheSource::kDisk,
                                        CacheSource::kSpill};
    return kSources[n % kTiers];
  }
  static Request First(int n, int vocab) {
    Request request = MakeRequest(SomeIds(1100 + 60 * n, 200 + n, vocab), 30);
    request.session_key = std::to_string(n);
    return request;
  }
  static Request Next(int n, int vocab, const Answer& answer) {
    Request request =
        MakeRequest(Joined(Joined(First(n, vocab).prompt, answer.ids),
                           SomeIds(100 + 40 * n, 300 + n, vocab)),
                    150 + 30 * n);
    request.sampling.temperature = n % 4 == 0 ? 0 : 1;
    request.sampling.seed = 100 + n;
    request.session_key = std::to_string(n);
    return request;
  }

  // Runs the first turns and leaves each conversation in one tier alone.
  void LeaveInTiers(LoopTierNode& old, int vocab) {
    old.tiers->admit = {1024};
    old.tiers->store_entry_bytes = std::uint64_t{1} << 30;
    for (int n = 0; n < kTalks; ++n) {
      answers_.push_back(old.engine->Run(First(n, vocab)));
    }
    old.Spill();
    std::erase_if(old.tiers->entries, [&](const FakeTiers::Entry& entry) {
      for (int n = 0; n < kTalks; ++n) {
        const auto prompt = First(n, vocab).prompt;
        const auto head = std::span(entry.ids).first(64);
        if (std::equal(head.begin(), head.end(), prompt.begin())) {
          return entry.tier != TierOf(n);
        }
      }
      return true;
    });
  }
  // What goes on from an answer's end has on a grid engine the bits that it has
  // in place; what starts at a line has those of a cold run.
  std::vector<Answer> Alone(LoopEngine& single, int vocab) {
    std::vector<Answer> alone;
    for (int n = 0; n < kTalks; ++n) {
      Request next = Next(n, vocab, answers_[n]);
      if (TierOf(n) == Tier::kDisk) {
        next.salt = std::to_string(n);
      } else {
        single.Run(First(n, vocab));
      }
      alone.push_back(single.Run(next));
      EXPECT_EQ(alone.back().result.cache.source, TierOf(n) == Tier::kDisk
                                                      ? CacheSource::kNone
                                                      : CacheSource::kEnd);
    }
    return alone;
  }
  static void RunAll(LoopTierNode& node) {
    for (int round = 0; !node.engine->idle(); ++round) {
      ASSERT_LT(round, LoopEngine::kGiveUp);
      node.engine->Round();
      if (round % 5 == 4 && node.tiers->restoring() > 0) {
        node.tiers->EndRestore();
      }
    }
  }

  std::vector<Answer> answers_;
};

TEST_P(TierLoadExactTest, AnswersReadFromTheTiersAreThoseOfARequestAlone) {
  const auto before =
      Make({.blocks = 96, .seats = 1, .max_rows = kRows}, /*threads=*/1);
  const int vocab = before->loaded.model->info().vocab_size;
  LoopTierNode old(std::move(before->loop));
  LeaveInTiers(old, vocab);
  const auto single = Make({.blocks = 96, .seats = 1, .max_rows = kRows}, 1);
  const std::vector<Answer> alone = Alone(*single->loop, vocab);
  for (const int seats : {1, 4, 8}) {
    SCOPED_TRACE(seats);
    const auto loaded =
        Make({.blocks = 26, .seats = seats, .max_rows = kRows}, 2);
    LoopTierNode node(std::move(loaded->loop), &old);
    node.tiers->hold_restores = true;
    std::vector<Submitted> all;
    for (int n = 0; n < kTalks; ++n) {
      all.push_back(node.engine->Submit(Next(n, vocab, answers_[n])));
    }
    RunAll(node);
    for (int n = 0; n < kTalks; ++n) {
      SCOPED_TRACE(n);
      EXPECT_EQ(all[n].result().cache.source, SourceOf(n));
      ExpectSame(all[n].answer(), alone[n]);
    }
    EXPECT_EQ(node.engine->loop().counts().preemptions > 0, seats > 1);
    node.engine->Check();
  }
}

auto Cases() {
  return ::testing::Combine(::testing::Values("tiny-llama", "tiny-qwen35"),
                            ::testing::Values(kernels::Exactness::kRowInvariant,
                                              kernels::Exactness::kGrid));
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return std::string(std::get<0>(info.param) == "tiny-llama" ? "Llama"
                                                             : "Hybrid") +
         (std::get<1>(info.param) == kernels::Exactness::kGrid ? "Grid" : "");
}

INSTANTIATE_TEST_SUITE_P(Models, LoadExactTest, Cases(), CaseName);
INSTANTIATE_TEST_SUITE_P(Models, TierLoadExactTest, Cases(), CaseName);

}  // namespace
}  // namespace holdfast::engine
