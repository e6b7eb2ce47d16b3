#include "gateway/openai/response.h"

#include <limits>
#include <string>

#include "gateway/openai/json.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

AnswerHead Head() {
  return {ChatId(1, 0xabc), 1700000000, "tiny",
          SystemFingerprint("\x01\xff"
                            "abcdefgh")};
}

HoldfastReport Report() {
  HoldfastReport report;
  report.cache_source = "resident";
  report.cached_by_source = {{"resident", 7}};
  report.anchor = "line";
  report.resumed_at_tokens = 7;
  report.computed_tokens = 3;
  report.queue_ms = 0.5;
  report.prefill_ms = 1.5;
  report.decode_ms = 2.5;
  return report;
}

Answer MakeAnswer() {
  Answer answer;
  answer.text = "Hi";
  answer.usage = {10, 2, 7, {}};
  answer.holdfast = Report();
  return answer;
}

std::vector<TokenLogprobs> Logprobs() {
  TokenLogprobs first{{"H", -0.5F}, {{"H", -0.5F}, {"\xC3", -1.5F}}};
  TokenLogprobs second{{"\xA9i", -std::numeric_limits<float>::infinity()}, {}};
  return {first, second};
}

constexpr char kReport[] =
    R"({"cache_source":"resident","cached_by_source":{"resident":7},)"
    R"("anchor":"line","resumed_at_tokens":7,"computed_tokens":3,"queue_ms":0.5,)"
    R"("prefill_ms":1.5,"decode_ms":2.5,"miss_reason":null})";
constexpr char kUsage[] =
    R"({"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,)"
    R"("prompt_tokens_details":{"cached_tokens":7}})";
constexpr char kChunkHead[] =
    R"({"id":"chatcmpl-00000000000000010000000000000abc",)"
    R"("object":"chat.completion.chunk","created":1700000000,"model":"tiny",)"
    R"("system_fingerprint":"fp_01ff61626364","choices":)";

TEST(ResponseTest, ChatCompletion) {
  EXPECT_EQ(
      Dump(ChatCompletion(Head(), MakeAnswer())),
      std::string(R"({"id":"chatcmpl-00000000000000010000000000000abc",)"
                  R"("object":"chat.completion","created":1700000000,)"
                  R"("model":"tiny","system_fingerprint":"fp_01ff61626364",)"
                  R"("choices":[{"index":0,"message":{"role":"assistant",)"
                  R"("content":"Hi"},"logprobs":null,"finish_reason":"stop"}],)"
                  R"("usage":)") +
          kUsage + R"(,"holdfast":)" + kReport + "}");
}

TEST(ResponseTest, ChatChunks) {
  const ChatChunks chunks(Head(), false);
  EXPECT_EQ(Dump(chunks.Role()),
            std::string(kChunkHead) +
                R"([{"index":0,"delta":{"role":"assistant","content":""},)"
                R"("logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(Dump(chunks.Content("H\n", nullptr)),
            std::string(kChunkHead) +
                R"([{"index":0,"delta":{"content":"H\n"},)"
                R"("logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(Dump(chunks.Finish(FinishReason::kLength, Report())),
            std::string(kChunkHead) +
                R"([{"index":0,"delta":{},"logprobs":null,)"
                R"("finish_reason":"length"}],"holdfast":)" +
                kReport + "}");
}

TEST(ResponseTest, MessageOfReasoningAndToolCalls) {
  Answer answer = MakeAnswer();
  answer.text = "";
  answer.reasoning = "hm";
  EXPECT_EQ(Dump(ChatCompletion(Head(), answer)["choices"][0]["message"]),
            R"({"role":"assistant","content":null,"reasoning_content":"hm"})");
  answer.reasoning = "";
  answer.tool_calls = {{"f", R"({"a": 1})"}, {"g", "{}"}};
  answer.finish = FinishReason::kToolCalls;
  answer.usage.reasoning_tokens = 0;
  const Json body = ChatCompletion(Head(), answer);
  EXPECT_EQ(
      Dump(body["choices"]),
      R"([{"index":0,"message":{"role":"assistant","content":null,)"
      R"("tool_calls":[{"id":"call_00010000000000000abc0000","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"a\": 1}"}},)"
      R"({"id":"call_00010000000000000abc0001","type":"function",)"
      R"("function":{"name":"g","arguments":"{}"}}]},"logprobs":null,)"
      R"("finish_reason":"tool_calls"}])");
  EXPECT_EQ(Dump(body["usage"]["completion_tokens_details"]),
            R"({"reasoning_tokens":0})");
  answer.text = "Hi";
  EXPECT_EQ(ChatCompletion(Head(), answer)["choices"][0]["message"]["content"],
            "Hi");
}

TEST(ResponseTest, ChunksOfReasoningAndToolCalls) {
  const ChatChunks chunks(Head(), false);
  const auto delta = [](const Json& chunk) {
    return Dump(chunk["choices"][0]["delta"]);
  };
  EXPECT_EQ(delta(chunks.Reasoning("h", nullptr)),
            R"({"reasoning_content":"h"})");
  EXPECT_EQ(delta(chunks.ToolCallStart(1, "f", nullptr)),
            R"({"tool_calls":[{"index":1,"id":"call_00010000000000000abc0001",)"
            R"("type":"function","function":{"name":"f","arguments":""}}]})");
  EXPECT_EQ(delta(chunks.ToolCallArguments(1, "{\"", nullptr)),
            R"({"tool_calls":[{"index":1,"function":{"arguments":"{\""}}]})");
  const std::vector<TokenLogprobs> logprobs = Logprobs();
  EXPECT_TRUE(chunks
                  .ToolCallArguments(
                      0, "", &logprobs)["choices"][0]["logprobs"]["content"]
                  .is_array());
}

TEST(ResponseTest, UsageChunkHasNoChoicesAndTheOthersANullUsage) {
  const ChatChunks chunks(Head(), true);
  EXPECT_EQ(Dump(chunks.UsageOnly({10, 2, 7, {}})),
            std::string(kChunkHead) + R"([],"usage":)" + kUsage + "}");
  for (const Json& chunk : {chunks.Role(), chunks.Content("x", nullptr),
                            chunks.Finish(FinishReason::kStop, Report())}) {
    EXPECT_TRUE(chunk.contains("usage"));
    EXPECT_TRUE(chunk["usage"].is_null());
  }
  EXPECT_FALSE(ChatChunks(Head(), false).Role().contains("usage"));
}

TEST(ResponseTest, ChatLogprobsNameBytesAndStayFinite) {
  Answer answer = MakeAnswer();
  answer.logprobs = Logprobs();
  const std::string expected =
      R"({"content":[{"token":"H","logprob":-0.5,"bytes":[72],)"
      R"("top_logprobs":[{"token":"H","logprob":-0.5,"bytes":[72]},)"
      R"({"token":"�","logprob":-1.5,"bytes":[195]}]},)"
      R"({"token":"�i","logprob":-9999.0,"bytes":[169,105],)"
      R"("top_logprobs":[]}],"refusal":null})";
  EXPECT_EQ(Dump(ChatCompletion(Head(), answer)["choices"][0]["logprobs"]),
            expected);
  const std::vector<TokenLogprobs> logprobs = Logprobs();
  EXPECT_EQ(Dump(ChatChunks(Head(), false)
                     .Content("", &logprobs)["choices"][0]["logprobs"]),
            expected);
}

TEST(ResponseTest, CompletionWithLogprobs) {
  Answer answer = MakeAnswer();
  answer.finish = FinishReason::kLength;
  answer.logprobs = Logprobs();
  const Json body = Completion(Head(), answer);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(Dump(body["choices"]),
            R"([{"index":0,"text":"Hi","logprobs":{"tokens":["H","�i"],)"
            R"("token_logprobs":[-0.5,-9999.0],)"
            R"("top_logprobs":[{"H":-0.5,"�":-1.5},{}],)"
            R"("text_offset":[0,1]},"finish_reason":"length"}])");
  EXPECT_EQ(Dump(body["usage"]), kUsage);
  EXPECT_EQ(Dump(body["holdfast"]), kReport);
}

TEST(ResponseTest, CompletionChunksCountTextOffsets) {
  CompletionChunks chunks(Head(), true);
  const std::vector<TokenLogprobs> logprobs = Logprobs();
  const auto offsets = [&] {
    return Dump(
        chunks.Text("Hi", &logprobs)["choices"][0]["logprobs"]["text_offset"]);
  };
  EXPECT_EQ(offsets(), "[0,1]");
  EXPECT_EQ(offsets(), "[2,3]");
  const Json finish = chunks.Finish(FinishReason::kStop, Report());
  EXPECT_EQ(
      Dump(finish["choices"]),
      R"([{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(Dump(chunks.UsageOnly({10, 2, 7, {}})["choices"]), "[]");
}

TEST(ResponseTest, DebugFieldsAndSeed) {
  HoldfastReport report = Report();
  report.miss_reason = "cold";
  report.seed = 9007199254740991;
  report.prompt_ids = {1, 2};
  report.output_ids.emplace();
  report.digests = DigestReport{"\x0f\xa0", "", "a", "b", std::nullopt};
  const Json json = HoldfastJson(report);
  EXPECT_EQ(json["miss_reason"], "cold");
  EXPECT_EQ(json["seed"], 9007199254740991);
  EXPECT_EQ(Dump(json["prompt_ids"]), "[1,2]");
  EXPECT_EQ(Dump(json["output_ids"]), "[]");
  EXPECT_EQ(Dump(json["digests"]),
            R"({"first_logits":"0fa0","resumed":null,"prompt_end":"61",)"
            R"("end":"62"})");
}

TEST(ResponseTest, SseFraming) {
  EXPECT_EQ(SseData(Json{{"a", "b\nc"}}), "data: {\"a\":\"b\\nc\"}\n\n");
  EXPECT_EQ(CompletionId(0, 255).substr(0, 5), "cmpl-");
}

}  // namespace
}  // namespace holdfast::openai
