// The exactness matrix: wherever a request of a recurrent hybrid resumes, it
// computes what a cold one computes. Compared with memcmp: the logits its first
// token is chosen from (as a digest) and the last ones, every section, every
// row, and the tokens themselves.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/exact_engine.h"
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
using testing::SomeIds;
using Ids = std::vector<std::int32_t>;

constexpr int kOutput = 3;

// One model for all tests, and one engine that never resumes: its requests have
// a salt each.
class Reference {
 public:
  Reference() : path_(folder_.File("tiny.gguf")) {
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
    // Other steps than the engines that are looked at.
    engine_ = std::make_unique<ExactEngine>(
        path_, ExactVariant{.threads = 2, .max_rows = 400});
  }
  // The engine after this request, cold.
  ExactEngine& After(Request request, Answer* answer) {
    request.salt = std::to_string(++requests_);
    *answer = engine_->Run(request);
    EXPECT_EQ(answer->result.cache.resumed_at, 0);
    return *engine_;
  }
  const std::string& path() const { return path_; }

  static Reference& Get() {
    static Reference reference;
    return reference;
  }

 private:
  model::testing::TempFolder folder_;
  std::string path_;
  std::unique_ptr<ExactEngine> engine_;
  int requests_ = 0;
};

// Prompt length, threads, whether other sequences have used blocks and anchors.
using Case = std::tuple<int, int, bool>;

class AnchorExactTest : public ::testing::TestWithParam<Case> {
 protected:
  AnchorExactTest()
      : length_(std::get<0>(GetParam())),
        engine_(Reference::Get().path(),
                {.threads = std::get<1>(GetParam()), .anchors = 8}),
        message_(length_ - 30),
        prompt_(SomeIds(length_, length_, engine_.vocab())) {
    if (!std::get<2>(GetParam())) return;
    for (int seed = 1; seed <= 3; ++seed) {
      Request request =
          MakeRequest(SomeIds(2000 + seed, seed, engine_.vocab()));
      request.messages = {300, 900, 1500, 1800, 1900};
      engine_.Run(request);
    }
    EXPECT_GT(engine_.engine->state().pool.counts().evictions, 0u);
    EXPECT_GT(engine_.engine->state().anchor_slots.live(), 4);
    // Beside it these would be guests.
    engine_.engine->resident().reset();
  }

  Request Make(Ids ids, int max_tokens = kOutput) {
    Request request = MakeRequest(std::move(ids), max_tokens);
    request.messages = {message_};
    return request;
  }
  Ids Head(int rows) { return Ids(prompt_.begin(), prompt_.begin() + rows); }
  // `rows` of the prompt, then something that it does not go on with.
  Ids Parting(int rows) {
    Ids ids = Joined(Head(rows), SomeIds(33, rows, engine_.vocab()));
    if (rows < length_ && ids[rows] == prompt_[rows]) ids[rows] ^= 1;
    return ids;
  }
  void ExpectExact(const Request& request, int position, AnchorKind kind) {
    SCOPED_TRACE(::testing::Message()
                 << AnchorKindName(kind) << " at " << position << ", prompt of "
                 << request.prompt.size());
    const Answer warm = engine_.Run(request);
    EXPECT_EQ(warm.result.cache.resumed_at, position);
    EXPECT_EQ(warm.result.cache.anchor, kind);
    Answer cold;
    ExactEngine& reference = Reference::Get().After(request, &cold);
    ExpectSame(warm, cold);
    ExpectSameBytes(engine_, reference);
  }

  const int length_;
  ExactEngine engine_;
  const int message_;
  const Ids prompt_;
};

TEST_P(AnchorExactTest, EveryKindOfResume) {
  for (int generated : {1, 2, 63, 300}) {
    const Answer answer = engine_.Run(Make(prompt_, generated));
    // Earlier answers begin alike: their ends would serve, too.
    engine_.engine->state().retained.Clear();
    EXPECT_EQ(answer.result.cache.computed, generated == 1 ? length_ : 0);
    Ids next = Joined(Joined(prompt_, answer.ids),
                      SomeIds(20, generated, engine_.vocab()));
    ExpectExact(Make(std::move(next)), length_ + generated - 1,
                AnchorKind::kEnd);
    ExpectExact(Make(prompt_), length_, AnchorKind::kPromptEnd);  // repeat
  }
  ExpectExact(Make(Parting(length_)), length_, AnchorKind::kPromptEnd);
  ExpectExact(Make(Parting(message_ + 7)), message_, AnchorKind::kMessage);
  const int grid = 1024;
  for (int line = (length_ - 1) / grid * grid; line > 0; line -= grid) {
    ExpectExact(Make(Parting(line)), line, AnchorKind::kLine);
  }
}

// The conversation is no longer the resident: it is parked, its last, partial
// block included.
TEST_P(AnchorExactTest, AfterAnotherConversation) {
  engine_.Run(Make(prompt_));
  engine_.Run(MakeRequest(SomeIds(600, 9, engine_.vocab())));
  EXPECT_EQ(engine_.engine->state().retained.counters().guests, 0u);
  ExpectExact(Make(Parting(message_ + 7)), message_, AnchorKind::kMessage);
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, AnchorExactTest,
    ::testing::Combine(::testing::Values(255, 256, 257, 1023, 1024, 1025, 2047,
                                         2048, 2049),
                       ::testing::Values(1, 2), ::testing::Bool()),
    [](const auto& info) {
      return std::to_string(std::get<0>(info.param)) + "Tokens" +
             std::to_string(std::get<1>(info.param)) + "Threads" +
             (std::get<2>(info.param) ? "Used" : "Fresh");
    });

}  // namespace
}  // namespace holdfast::engine
