#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/response/response_cache.h"
#include "engine/response/response_recorder.h"
#include "engine/testing/recording_sink.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using testing::RecordingSink;

constexpr Sha256Digest kModel{1};
constexpr std::uint64_t kBudget = 1 << 20;

Request Greedy() {
  Request request;
  request.id = "r";
  request.session_key = "s";
  request.prompt = {1, 2, 3};
  request.salt = "salt";
  request.max_tokens = 4;
  request.stop_strings = {"a", "b"};
  return request;
}

ThinkingLimit Thinking(int tokens) {
  return {.tokens = tokens,
          .open_tag = "<think>",
          .close_tag = "</think>",
          .words = {7, 8}};
}

Response Answer(int tokens) {
  Response response;
  for (int i = 0; i < tokens; ++i)
    response.tokens.push_back({.id = i, .logprobs = {}});
  response.prompt_tokens = 3;
  return response;
}

TEST(ResponseCacheTest, EveryPartOfTheRequestIsInTheKey) {
  const ResponseCache cache(kModel, kBudget);
  const auto key = cache.KeyOf(Greedy());
  ASSERT_TRUE(key.has_value());
  const auto with = [&](const std::function<void(Request&)>& change) {
    Request request = Greedy();
    change(request);
    return cache.KeyOf(request);
  };
  EXPECT_EQ(with([](Request& r) { r.id = "other"; }), key);
  EXPECT_EQ(with([](Request& r) { r.session_key = "other"; }), key);
  EXPECT_EQ(with([](Request& r) { r.fingerprint = kModel; }), key);
  const std::function<void(Request&)> changes[] = {
      [](Request& r) { r.prompt.back() = 4; },
      [](Request& r) { r.prompt.push_back(4); },
      [](Request& r) { r.salt = "other"; },
      [](Request& r) { r.salt = ""; },
      [](Request& r) { r.max_tokens = 5; },
      [](Request& r) { r.stop_strings = {"ab"}; },
      [](Request& r) {
        r.stop_strings = {"b", "a"};
      },
      [](Request& r) { r.ignore_eos = true; },
      [](Request& r) { r.top_logprobs = 0; },
      [](Request& r) { r.thinking = Thinking(0); },
      [](Request& r) { r.thinking = Thinking(1); },
      [](Request& r) {
        r.thinking = Thinking(1);
        r.thinking->open = true;
      },
      [](Request& r) {
        r.thinking = Thinking(1);
        r.thinking->words = {8};
      },
      [](Request& r) { r.top_logprobs = 1; },
      [](Request& r) { r.sampling.top_k = 1; },
      [](Request& r) { r.sampling.top_p = 0.5; },
      [](Request& r) { r.sampling.min_p = 0.5; },
      [](Request& r) { r.sampling.seed = 1; },
      [](Request& r) { r.sampling.repetition_penalty = 1.5; },
      [](Request& r) { r.sampling.presence_penalty = 1; },
      [](Request& r) { r.sampling.frequency_penalty = 1; },
      [](Request& r) {
        r.sampling.logit_bias = {{1, 1.0F}};
      },
      [](Request& r) {
        r.sampling.logit_bias = {{1, 2.0F}};
      },
  };
  std::vector<Sha256Digest> seen = {*key};
  for (const auto& change : changes) {
    const auto other = with(change);
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), *other), 0)
        << "change " << seen.size();
    seen.push_back(*other);
  }
  EXPECT_NE(ResponseCache({2}, kBudget).KeyOf(Greedy()), key);
}

TEST(ResponseCacheTest, WhatIsNeitherAnsweredNorKept) {
  const ResponseCache cache(kModel, kBudget);
  const std::function<void(Request&)> changes[] = {
      [](Request& r) { r.sampling.temperature = 0.5; },
      [](Request& r) { r.cache_mode = CacheMode::kBypass; },
      [](Request& r) { r.cache_mode = CacheMode::kReadOnly; },
      [](Request& r) { r.forced.emplace(); },
      [](Request& r) { r.digest = true; },
      [](Request& r) { r.fingerprint = Sha256Digest{9}; },
  };
  for (const auto& change : changes) {
    Request request = Greedy();
    change(request);
    EXPECT_FALSE(cache.KeyOf(request).has_value()) << &change - changes;
  }
}

TEST(ResponseCacheTest, TheLeastRecentlyUsedGoes) {
  const std::uint64_t each = Answer(10).bytes();
  ResponseCache cache(kModel, 2 * each);
  const Sha256Digest a{10}, b{11}, c{12};
  cache.Add(a, Answer(10));
  cache.Add(b, Answer(10));
  EXPECT_NE(cache.Find(a), nullptr);
  cache.Add(c, Answer(10));
  EXPECT_EQ(cache.Find(b), nullptr);
  EXPECT_NE(cache.Find(a), nullptr);
  EXPECT_NE(cache.Find(c), nullptr);
  cache.Add(Sha256Digest{13}, Answer(1000));  // fits nowhere, displaces nothing
  const ResponseCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_LE(stats.bytes, stats.budget_bytes);
  EXPECT_EQ(stats.hits, 3u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_EQ(cache.Clear(), 2u);
  EXPECT_EQ(cache.Find(a), nullptr);
  EXPECT_EQ(cache.stats().bytes, 0u);
}

// What a request with a recorder is told.
Result Finished(FinishReason reason) {
  Result result;
  result.reason = reason;
  result.prompt_tokens = 3;
  result.output_tokens = 2;
  return result;
}

TEST(ResponseRecorderTest, KeepsWhatItPassesOn) {
  ResponseCache cache(kModel, kBudget);
  const Sha256Digest key{10};
  const auto sink = std::make_shared<RecordingSink>();
  ResponseRecorder recorder(sink, &cache, key);
  OutputToken token{.id = 7,
                    .logprobs = Logprobs{.chosen = -1, .top = {{7, -1}}}};
  recorder.OnStarted({}, {});
  recorder.OnProgress(1, 3);
  EXPECT_TRUE(recorder.OnToken(token));
  EXPECT_TRUE(recorder.OnToken({.id = 8, .logprobs = {}}));
  EXPECT_EQ(cache.stats().entries, 0u);
  Result result = Finished(FinishReason::kStopString);
  result.stop_string_index = 1;
  recorder.OnFinished(result);
  EXPECT_EQ(sink->ids, (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(sink->progress, std::vector{1});
  ASSERT_TRUE(sink->result().has_value());

  const auto kept = cache.Find(key);
  ASSERT_NE(kept, nullptr);
  RecordingSink again;
  const Result sent = SendResponse(*kept, again);
  EXPECT_EQ(again.ids, sink->ids);
  ASSERT_TRUE(again.tokens.at(0).logprobs.has_value());
  EXPECT_EQ(again.tokens.at(0).logprobs->top.at(0).id, 7);
  EXPECT_FALSE(again.ended());  // the last event is the caller's
  EXPECT_EQ(sent.reason, FinishReason::kStopString);
  EXPECT_EQ(sent.stop_string_index, 1);
  EXPECT_EQ(sent.output_tokens, 2);
  EXPECT_EQ(sent.cache.computed, 0);
  EXPECT_EQ(CachedBySource(sent.cache),
            (SourceRows{{CacheSource::kResponse, 3}}));
  EXPECT_EQ(again.started->source, CacheSource::kResponse);
}

TEST(ResponseRecorderTest, OnlyWholeAnswersThatAColdRunGives) {
  ResponseCache cache(kModel, kBudget);
  for (const FinishReason reason :
       {FinishReason::kCancelled, FinishReason::kError}) {
    ResponseRecorder recorder(std::make_shared<RecordingSink>(), &cache, {10});
    EXPECT_TRUE(recorder.OnToken({.id = 7, .logprobs = {}}));
    recorder.OnFinished(Finished(reason));
  }
  ResponseRecorder of_session(std::make_shared<RecordingSink>(), &cache, {10});
  EXPECT_TRUE(of_session.OnToken({.id = 7, .logprobs = {}}));
  Result other_bits = Finished(FinishReason::kStop);
  other_bits.as_cold = false;
  of_session.OnFinished(other_bits);
  ResponseRecorder refused(std::make_shared<RecordingSink>(), &cache, {10});
  refused.OnRefused({});
  const auto sink = std::make_shared<RecordingSink>();
  ResponseRecorder long_one(sink, &cache, {11});
  const std::size_t tokens =
      ResponseCache::kMaxResponseBytes / sizeof(OutputToken) + 1;
  for (std::size_t i = 0; i < tokens; ++i)
    EXPECT_TRUE(long_one.OnToken({.id = 7, .logprobs = {}}));
  long_one.OnFinished(Finished(FinishReason::kLength));
  EXPECT_EQ(sink->ids.size(), tokens);
  EXPECT_EQ(cache.stats().entries, 0u);
}

TEST(ResponseRecorderTest, AClientThatDoesNotKeepUp) {
  RecordingSink sink;
  sink.accepts = 3;
  const Result sent = SendResponse(Answer(10), sink);
  EXPECT_EQ(sent.reason, FinishReason::kError);
  EXPECT_EQ(sink.ids.size(), 3u);
}

}  // namespace
}  // namespace holdfast::engine
