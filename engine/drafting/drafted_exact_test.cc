// An answer that ends within a step of several tokens keeps those that it has
// and no others: rows, recurrent state, last logits and the next turn are those
// of steps of one token, compared with memcmp, on a recurrent hybrid.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/exact_engine.h"
#include "engine/testing/scripted_drafter.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExactEngine;
using testing::ExactVariant;
using testing::ExpectSame;
using testing::ExpectSameBytes;
using testing::Joined;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::ScriptedDrafter;
using testing::SomeIds;
using Ids = std::vector<std::int32_t>;

constexpr int kAnswer = 40;

// One model, and one engine that takes a token a step, for all tests.
class Single {
 public:
  Single() : path_(folder_.File("tiny.gguf")) {
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
    engine_.emplace(path_, ExactVariant{.max_rows = 64});
  }
  const std::string& path() const { return path_; }
  ExactEngine& engine() { return *engine_; }

  static Single& Get() {
    static Single single;
    return single;
  }

 private:
  model::testing::TempFolder folder_;
  std::string path_;
  std::optional<ExactEngine> engine_;
};

enum class By { kLength, kEndOfTurn, kStopString, kCancel, kDisconnect };

// Which guesses are wrong (-1: there are none), the prompt's length, and what
// ends the answer.
using Case = std::tuple<int, int, By>;

class DraftedExactTest : public ::testing::TestWithParam<Case> {
 protected:
  DraftedExactTest()
      : single_(Single::Get().engine()),
        drafted_(Single::Get().path(), {.max_rows = 64}),
        drafter_(std::max(std::get<0>(GetParam()), 0)),
        prompt_(SomeIds(std::get<1>(GetParam()), 1, drafted_.vocab())) {
    if (drafts()) drafted_.engine->state().drafter = &drafter_;
    for (const std::int32_t id : SomeIds(200, 5, drafted_.vocab())) {
      const bool text =
          !drafted_.engine->state().token_bytes.Of(id).empty() && !IsEos(id);
      if (answer_.size() < kAnswer && text) answer_.push_back(id);
    }
  }

  static bool drafts() { return std::get<0>(GetParam()) >= 0; }
  bool IsEos(std::int32_t id) const {
    const auto& eos = drafted_.engine->state().options.eos_ids;
    return std::ranges::count(eos, id) > 0;
  }
  // Each a conversation of its own.
  Request Make(Ids prompt) {
    static int salts = 0;
    Request request = MakeRequest(std::move(prompt), kAnswer + 1);
    request.salt = std::to_string(++salts);
    return request;
  }
  // The answer ends with token `end`, counted from 1.
  Request Ending(By by, int end) {
    Request request = Make(prompt_);
    request.forced = answer_;
    if (by == By::kLength) request.max_tokens = end;
    if (by == By::kEndOfTurn) {
      request.ignore_eos = false;
      (*request.forced)[end - 1] =
          drafted_.engine->state().options.eos_ids.front();
    }
    if (by == By::kStopString) {
      request.stop_strings = {std::string(
          drafted_.engine->state().token_bytes.Of(answer_[end - 1]))};
    }
    return request;
  }
  static Answer Run(ExactEngine& engine, const Request& request, By by,
                    int end) {
    RecordingSink sink;
    if (by == By::kDisconnect) sink.accepts = end;
    return engine.engine->Run(request, sink, [&] {
      return by == By::kCancel && static_cast<int>(sink.ids.size()) == end;
    });
  }

  ExactEngine& single_;
  ExactEngine drafted_;
  ScriptedDrafter drafter_;
  const Ids prompt_;
  Ids answer_;
};

TEST_P(DraftedExactTest, WhatEndsAnAnswerCutsTheStep) {
  const By by = std::get<2>(GetParam());
  for (const int end : {1, 2, 3, 7, 8, 15, 16, 17, 30}) {
    SCOPED_TRACE(end);
    Request request = Ending(by, end);
    // Beside it this one might be a guest.
    single_.engine->resident().reset();
    drafted_.engine->resident().reset();
    const Answer one = Run(single_, request, by, end);
    // It sees the end of a turn coming, and more behind it, or does not.
    drafter_.Know(prompt_, end % 2 == 0 ? *request.forced : answer_);
    const Answer many = Run(drafted_, request, by, end);
    EXPECT_LE(one.ids.size(), static_cast<std::size_t>(end));
    ExpectSame(many, one);
    ExpectSameBytes(drafted_, single_);

    // The next turn goes on from there.
    Request next = Make(
        Joined(Joined(prompt_, many.ids), SomeIds(20, end, drafted_.vocab())));
    next.salt = request.salt;
    next.max_tokens = 2;
    const Answer after = drafted_.Run(next);
    EXPECT_EQ(after.result.cache.resumed_at,
              static_cast<int>(prompt_.size() + many.ids.size()) -
                  (by == By::kCancel ? 0 : 1));
    ExpectSame(after, single_.engine->Cold(next));
  }
  EXPECT_EQ(drafter_.drafted > 0, drafts());
}

INSTANTIATE_TEST_SUITE_P(
    Ends, DraftedExactTest,
    // 248: the answer goes over a block's end.
    ::testing::Combine(::testing::Values(-1, 0, 1, 3),
                       ::testing::Values(20, 248),
                       ::testing::Values(By::kLength, By::kEndOfTurn,
                                         By::kStopString, By::kCancel,
                                         By::kDisconnect)));

// Nobody forces it: what the model samples is what it samples without drafts.
TEST(DraftedSampledTest, TheAnswerIsTheModelsOwn) {
  ExactEngine& single = Single::Get().engine();
  for (const std::size_t wrong : {0, 1, 4}) {
    ExactEngine drafted(Single::Get().path(), {.max_rows = 64});
    ScriptedDrafter drafter(wrong);
    drafted.engine->state().drafter = &drafter;
    Request request = MakeRequest(SomeIds(100, 2, drafted.vocab()), 50);
    request.salt = std::to_string(1000 + wrong);
    request.sampling = {.temperature = 1, .seed = 3, .presence_penalty = 1};
    request.top_logprobs = 2;
    const Answer one = single.Run(request);
    drafter.Know(request.prompt, one.ids);
    const std::uint64_t before = drafted.engine->state().generated;
    const Answer many = drafted.Run(request);
    ExpectSame(many, one);
    ExpectSameBytes(drafted, single);
    EXPECT_EQ(drafted.engine->state().generated - before, 50u);
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(many.tokens[i].logprobs->chosen,
                one.tokens[i].logprobs->chosen);
    }
  }
}

}  // namespace
}  // namespace holdfast::engine
