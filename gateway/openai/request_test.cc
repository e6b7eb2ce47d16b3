#include "gateway/openai/request.h"

#include <string>
#include <variant>

#include "gateway/openai/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServerFacts Facts(bool debug = false) { return {"tiny", 1000, debug}; }

Json Parse(const std::string& text) {
  const ApiOr<Json> json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << text << ": " << json.error().message;
  return json.ok() ? *json : Json();
}

// A chat body with these further fields.
ApiOr<ChatRequest> Chat(const std::string& fields, bool debug = false) {
  Json body = Parse(R"({"messages":[{"role":"user","content":"x"}]})");
  body.update(Parse("{" + fields + "}"));
  return ParseChatRequest(body, Facts(debug));
}

ChatRequest GoodChat(const std::string& fields, bool debug = false) {
  ApiOr<ChatRequest> request = Chat(fields, debug);
  EXPECT_TRUE(request.ok()) << fields << ": " << request.error().message;
  return request.ok() ? *request : ChatRequest{};
}

void ExpectRefused(const std::string& fields, const std::string& param) {
  const ApiOr<ChatRequest> request = Chat(fields, true);
  ASSERT_FALSE(request.ok()) << fields;
  EXPECT_EQ(request.error().http_status, 400) << fields;
  EXPECT_EQ(request.error().param, param) << fields;
  EXPECT_THAT(request.error().message, HasSubstr(param));
}

ApiOr<CompletionRequest> Complete(const std::string& body) {
  return ParseCompletionRequest(Parse(body), Facts());
}

TEST(RequestTest, Defaults) {
  const ChatRequest request = GoodChat("");
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.min_p, 0);
  EXPECT_EQ(request.sampling.repetition_penalty, 1);
  EXPECT_EQ(request.sampling.presence_penalty, 0);
  EXPECT_EQ(request.sampling.frequency_penalty, 0);
  EXPECT_EQ(request.sampling.seed, std::nullopt);
  EXPECT_TRUE(request.sampling.logit_bias.empty());
  EXPECT_EQ(request.max_tokens, std::nullopt);
  EXPECT_EQ(request.top_logprobs, std::nullopt);
  EXPECT_TRUE(request.stop.empty());
  EXPECT_FALSE(request.stream || request.include_usage || request.ignore_eos ||
               request.digest);
  EXPECT_EQ(request.cache_mode, CacheMode::kDefault);
  EXPECT_FALSE(request.force.has_value());
  EXPECT_TRUE(request.tools.is_null());
  EXPECT_EQ(request.template_kwargs, Json::object());
}

TEST(RequestTest, EveryFieldArrives) {
  const ChatRequest request = GoodChat(
      R"("model":"tiny","temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.1,
         "seed":18446744073709551615,"repetition_penalty":1.5,
         "presence_penalty":-2,"frequency_penalty":2,
         "logit_bias":{"0":-100,"999":1.5},"max_tokens":7,
         "stop":["a","b"],"ignore_eos":true,"stream":true,
         "stream_options":{"include_usage":true,"other":1},
         "logprobs":true,"top_logprobs":20,"cache_salt":"s","session_id":"id",
         "chat_template_kwargs":{"k":[1]},"thinking_budget":9,
         "holdfast":{"cache":"read_only","digest":true,"force":"say"})",
      true);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.top_p, 0.9F);
  EXPECT_EQ(request.sampling.min_p, 0.1F);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 2);
  EXPECT_EQ(request.sampling.logit_bias,
            (std::map<std::uint32_t, float>{{0, -100}, {999, 1.5}}));
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(request.ignore_eos && request.stream && request.include_usage);
  EXPECT_EQ(request.top_logprobs, 20);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.session_id, "id");
  EXPECT_EQ(request.template_kwargs.dump(), R"({"k":[1]})");
  EXPECT_EQ(request.thinking_budget, 9);
  EXPECT_EQ(request.cache_mode, CacheMode::kReadOnly);
  EXPECT_TRUE(request.digest);
  ASSERT_TRUE(request.force.has_value());
  EXPECT_EQ(request.force->text, "say");
}

TEST(RequestTest, NullIsAbsent) {
  const ChatRequest request = GoodChat(
      R"("model":null,"temperature":null,"top_p":null,"seed":null,"stop":null,
         "max_tokens":null,"stream":null,"stream_options":null,"n":null,
         "logit_bias":null,"tools":null,"tool_choice":null,"logprobs":null,
         "top_logprobs":null,"response_format":null,"holdfast":null,
         "chat_template_kwargs":null,"session_id":null,"cache_salt":null,
         "thinking_budget":null)");
  EXPECT_EQ(request.thinking_budget, std::nullopt);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.max_tokens, std::nullopt);
}

TEST(RequestTest, WrongTypesNameTheField) {
  for (const char* field : {"temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "seed",
                            "repetition_penalty",
                            "presence_penalty",
                            "frequency_penalty",
                            "logit_bias",
                            "max_tokens",
                            "max_completion_tokens",
                            "ignore_eos",
                            "stream",
                            "stream_options",
                            "logprobs",
                            "top_logprobs",
                            "tools",
                            "chat_template_kwargs",
                            "holdfast",
                            "messages",
                            "response_format"}) {
    for (const char* value : {"\"x\"", "[{}]"}) {
      const bool fits =
          std::string(value) == "[{}]" &&
          (std::string(field) == "tools" || std::string(field) == "messages");
      if (fits) continue;
      ExpectRefused("\"" + std::string(field) + "\":" + value, field);
    }
  }
  for (const char* field : {"model", "cache_salt", "session_id"}) {
    ExpectRefused("\"" + std::string(field) + "\":7", field);
  }
  ExpectRefused(R"("stop":7)", "stop");
  ExpectRefused(R"("stop":["a",7])", "stop");
  ExpectRefused(R"("stream":"true")", "stream");
  ExpectRefused(R"("stream_options":{"include_usage":1})",
                "stream_options.include_usage");
}

TEST(RequestTest, RangesAreChecked) {
  ExpectRefused(R"("temperature":-0.1)", "temperature");
  ExpectRefused(R"("temperature":2.1)", "temperature");
  ExpectRefused(R"("top_p":0)", "top_p");
  ExpectRefused(R"("top_p":-0.5)", "top_p");
  ExpectRefused(R"("top_p":1.01)", "top_p");
  ExpectRefused(R"("min_p":1.5)", "min_p");
  ExpectRefused(R"("top_k":-2)", "top_k");
  ExpectRefused(R"("top_k":1.5)", "top_k");
  ExpectRefused(R"("top_k":4294967296)", "top_k");
  ExpectRefused(R"("thinking_budget":-2)", "thinking_budget");
  ExpectRefused(R"("thinking_budget":2147483648)", "thinking_budget");
  ExpectRefused(R"("thinking_budget":"low")", "thinking_budget");
  ExpectRefused(R"("repetition_penalty":0)", "repetition_penalty");
  ExpectRefused(R"("presence_penalty":2.5)", "presence_penalty");
  ExpectRefused(R"("frequency_penalty":-2.5)", "frequency_penalty");
  ExpectRefused(R"("seed":1.5)", "seed");
  ExpectRefused(R"("seed":18446744073709551616)", "seed");
  ExpectRefused(R"("max_tokens":0)", "max_tokens");
  ExpectRefused(R"("max_tokens":-2)", "max_tokens");
  ExpectRefused(R"("max_tokens":1e300)", "max_tokens");
  ExpectRefused(R"("max_completion_tokens":2.5)", "max_completion_tokens");
  ExpectRefused(R"("logprobs":true,"top_logprobs":21)", "top_logprobs");
  ExpectRefused(R"("top_logprobs":3)", "top_logprobs");
  ExpectRefused(R"("logit_bias":{"1000":1})", "logit_bias");
  ExpectRefused(R"("logit_bias":{"-1":1})", "logit_bias");
  ExpectRefused(R"("logit_bias":{"7x":1})", "logit_bias");
  ExpectRefused(R"("logit_bias":{"":1})", "logit_bias");
  ExpectRefused(R"("logit_bias":{"7":101})", "logit_bias");
  ExpectRefused(R"("logit_bias":{"7":"1"})", "logit_bias");
  ExpectRefused(R"("stop":"")", "stop");
  ExpectRefused(R"("stop":["a",""])", "stop");
  ExpectRefused("\"session_id\":\"" + std::string(513, 'x') + "\"",
                "session_id");
  ExpectRefused("\"cache_salt\":\"" + std::string(1025, 'x') + "\"",
                "cache_salt");
}

TEST(RequestTest, EdgesOfRangesPass) {
  EXPECT_EQ(GoodChat(R"("temperature":2)").sampling.temperature, 2);
  EXPECT_EQ(GoodChat(R"("temperature":0)").sampling.temperature, 0);
  EXPECT_EQ(GoodChat(R"("temperature":1e-30)").sampling.temperature, 0);
  EXPECT_GT(GoodChat(R"("top_p":1e-60)").sampling.top_p, 0);
  EXPECT_EQ(GoodChat(R"("top_k":-1)").sampling.top_k, 0);
  EXPECT_EQ(GoodChat(R"("seed":-1)").sampling.seed, std::nullopt);
  EXPECT_EQ(GoodChat(R"("seed":-2)").sampling.seed, UINT64_MAX - 1);
  EXPECT_EQ(GoodChat(R"("seed":-9223372036854775808)").sampling.seed,
            std::uint64_t{1} << 63);
  EXPECT_EQ(GoodChat(R"("max_tokens":-1)").max_tokens, std::nullopt);
  EXPECT_EQ(GoodChat(R"("max_tokens":5,"max_completion_tokens":-1)").max_tokens,
            std::nullopt);
  EXPECT_EQ(GoodChat(R"("thinking_budget":-1)").thinking_budget,
            kNoThinkingBudget);
  EXPECT_EQ(GoodChat(R"("thinking_budget":0)").thinking_budget, 0);
  EXPECT_EQ(GoodChat(R"("max_tokens":16.0)").max_tokens, 16);
  EXPECT_EQ(GoodChat(R"("max_tokens":5,"max_completion_tokens":6)").max_tokens,
            6);
  EXPECT_EQ(GoodChat(R"("logprobs":false,"top_logprobs":0)").top_logprobs,
            std::nullopt);
  EXPECT_EQ(GoodChat(R"("logprobs":true)").top_logprobs, 0);
  EXPECT_THAT(GoodChat(R"("stop":"x")").stop, ElementsAre("x"));
  EXPECT_TRUE(GoodChat(R"("stop":[])").stop.empty());
}

TEST(RequestTest, SixteenStopsAndNoMore) {
  Json stops = Json::array();
  for (int i = 0; i < 16; ++i) stops.push_back(std::to_string(i));
  EXPECT_EQ(GoodChat("\"stop\":" + stops.dump()).stop.size(), 16);
  stops.push_back("z");
  ExpectRefused("\"stop\":" + stops.dump(), "stop");
}

TEST(RequestTest, AnUnknownModelIsNotFound) {
  const ApiOr<ChatRequest> request = Chat(R"("model":"other")");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().http_status, 404);
  EXPECT_EQ(request.error().code, "model_not_found");
  EXPECT_TRUE(Chat(R"("model":"")").ok());
}

TEST(RequestTest, NeutralValuesOfRefusedFieldsPass) {
  GoodChat(R"("n":1,"best_of":1,"echo":false,"suffix":"","functions":[],
      "function_call":"auto","modalities":["text"],"documents":[],
      "add_generation_prompt":true,"continue_final_message":false,"grammar":"",
      "json_schema":{},"min_tokens":0,"stop_token_ids":[],"bad_words":[],
      "use_beam_search":false,"length_penalty":1.0,"tool_choice":"auto",
      "regex":"","allowed_token_ids":[],"include_stop_str_in_output":false,
      "skip_special_tokens":true,"return_token_ids":false,"stop_regex":[],
      "response_format":{"type":"text"},"chat_template":null)");
  ExpectRefused(R"("n":0)", "n");
  ExpectRefused(R"("response_format":{})", "response_format.type");
}

TEST(RequestTest, BodiesThatAreNoObjects) {
  for (const char* text : {"[]", "7", "null", "\"x\"", "true"}) {
    for (const ApiError& error :
         {ParseChatRequest(Parse(text), Facts()).error(),
          ParseCompletionRequest(Parse(text), Facts()).error()}) {
      EXPECT_EQ(error.http_status, 400);
      EXPECT_THAT(error.message, HasSubstr("must be a JSON object"));
    }
  }
}

TEST(RequestTest, ToolsGoAsWrittenAndOthersAreLeftOut) {
  const std::string tool =
      R"({"type":"function","function":{"name":"f","z":1,"a":2}})";
  EXPECT_EQ(GoodChat("\"tools\":[" + tool + R"(,{"type":"web_search"}])")
                .tools.dump(),
            "[" + tool + "]");
  EXPECT_TRUE(GoodChat(R"("tools":[{"type":"web_search"}])").tools.is_null());
  EXPECT_TRUE(GoodChat(R"("tools":[])").tools.is_null());
  EXPECT_TRUE(GoodChat("\"tool_choice\":\"none\",\"tools\":[" + tool + "]")
                  .tools.is_null());
  ExpectRefused(R"("tools":[7])", "tools[0]");
  ExpectRefused(R"("tools":[{}])", "tools[0].type");
  ExpectRefused("\"tools\":[" + tool + R"(,{"type":"function"}])",
                "tools[1].function");
  ExpectRefused(R"("tools":[{"type":"function","function":{"name":""}}])",
                "tools[0].function.name");
}

TEST(RequestTest, SwitchesOfThinkingAreTemplateVariables) {
  const auto variables = [](const std::string& fields) {
    return GoodChat(fields).template_kwargs.dump();
  };
  EXPECT_EQ(variables(R"("enable_thinking":false)"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("reasoning_effort":"low")"),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"("reasoning_effort":"none")"),
            R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(variables(R"("reasoning_effort":"none","enable_thinking":true)"),
            R"({"enable_thinking":true,"reasoning_effort":"none"})");
  EXPECT_EQ(variables(R"("reasoning_effort":"high","enable_thinking":true,
                         "chat_template_kwargs":{"enable_thinking":false,
                                                 "reasoning_effort":1})"),
            R"({"enable_thinking":false,"reasoning_effort":1})");
  EXPECT_EQ(variables(R"("reasoning_effort":null,"enable_thinking":null)"),
            "{}");
  ExpectRefused(R"("enable_thinking":"no")", "enable_thinking");
  ExpectRefused(R"("reasoning_effort":3)", "reasoning_effort");
}

TEST(RequestTest, ParallelToolCalls) {
  EXPECT_TRUE(GoodChat("").parallel_tool_calls);
  EXPECT_FALSE(GoodChat(R"("parallel_tool_calls":false)").parallel_tool_calls);
  ExpectRefused(R"("parallel_tool_calls":0)", "parallel_tool_calls");
}

TEST(RequestTest, HoldfastFieldsAreStrict) {
  EXPECT_EQ(GoodChat(R"("holdfast":{"cache":"bypass"})").cache_mode,
            CacheMode::kBypass);
  EXPECT_EQ(GoodChat(R"("holdfast":{"cache":"default"})").cache_mode,
            CacheMode::kDefault);
  EXPECT_EQ(GoodChat(R"("holdfast":{})").cache_mode, CacheMode::kDefault);
  ExpectRefused(R"("holdfast":{"cache":"off"})", "holdfast.cache");
  ExpectRefused(R"("holdfast":{"cashe":"bypass"})", "holdfast.cashe");
}

TEST(RequestTest, DebugFieldsNeedADebugEngine) {
  const ApiOr<ChatRequest> digest = Chat(R"("holdfast":{"digest":true})");
  ASSERT_FALSE(digest.ok());
  EXPECT_EQ(digest.error().param, "holdfast.digest");
  EXPECT_THAT(digest.error().message, HasSubstr("--debug"));
  const ApiOr<ChatRequest> force = Chat(R"("holdfast":{"force":"x"})");
  ASSERT_FALSE(force.ok());
  EXPECT_EQ(force.error().param, "holdfast.force");
  EXPECT_TRUE(Chat(R"("holdfast":{"digest":false})").ok());
}

TEST(RequestTest, ForceInAllItsForms) {
  const Force parts = *GoodChat(R"("holdfast":{"force":{"text":"t",
      "reasoning":"r","tool_calls":[{"name":"f","arguments":{"b":1,"a":2}}]}})",
                                true)
                           .force;
  EXPECT_EQ(parts.text, "t");
  EXPECT_EQ(parts.reasoning, "r");
  ASSERT_EQ(parts.tool_calls.size(), 1);
  EXPECT_EQ(parts.tool_calls[0].dump(),
            R"({"name":"f","arguments":{"b":1,"a":2}})");
  EXPECT_EQ(parts.ids, std::nullopt);
  EXPECT_THAT(
      *GoodChat(R"("holdfast":{"force":{"ids":[3,1]}})", true).force->ids,
      ElementsAre(3, 1));
  EXPECT_FALSE(parts.hold);
  EXPECT_TRUE(GoodChat(R"("holdfast":{"force":{"text":"t","hold":true}})", true)
                  .force->hold);
  EXPECT_TRUE(GoodChat(R"("holdfast":{"force":{"ids":[3],"hold":true}})", true)
                  .force->hold);
  for (const char* bad :
       {R"({"text":"t","hold":1})", R"({"ids":[1],"hold":1})", R"(7)", R"([])",
        R"({"txt":"x"})", R"({"text":7})", R"({"ids":[1],"text":"x"})",
        R"({"ids":[-1]})", R"({"ids":["a"]})", R"({"ids":7})",
        R"({"tool_calls":{}})", R"({"tool_calls":[7]})",
        R"({"tool_calls":[{"name":"f"}]})",
        R"({"tool_calls":[{"arguments":{}}]})"}) {
    const ApiOr<ChatRequest> request =
        Chat(std::string(R"("holdfast":{"force":)") + bad + "}", true);
    ASSERT_FALSE(request.ok()) << bad;
    EXPECT_THAT(request.error().param, HasSubstr("holdfast.force")) << bad;
  }
}

TEST(RequestTest, CompletionPrompts) {
  EXPECT_EQ(std::get<std::string>(Complete(R"({"prompt":"Hi"})")->prompt),
            "Hi");
  EXPECT_EQ(std::get<std::string>(Complete(R"({"prompt":["Hi"]})")->prompt),
            "Hi");
  using Ids = std::vector<std::uint32_t>;
  EXPECT_EQ(std::get<Ids>(Complete(R"({"prompt":[1,999]})")->prompt),
            (Ids{1, 999}));
  EXPECT_EQ(std::get<Ids>(Complete(R"({"prompt":[[5]]})")->prompt), (Ids{5}));
  const auto param = [](const std::string& body) {
    const ApiOr<CompletionRequest> request = Complete(body);
    EXPECT_FALSE(request.ok()) << body;
    return request.ok() ? "" : request.error().param;
  };
  EXPECT_EQ(param(R"({})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":[]})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":[[]]})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":7})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":["a","b"]})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":[[1],[2]]})"), "prompt");
  EXPECT_EQ(param(R"({"prompt":[1,1000]})"), "prompt[1]");
  EXPECT_EQ(param(R"({"prompt":[1,"a"]})"), "prompt[1]");
  EXPECT_EQ(param(R"({"prompt":[[1,-1]]})"), "prompt[0][1]");
  EXPECT_EQ(param(R"({"prompt":"x","logprobs":21})"), "logprobs");
  EXPECT_EQ(param(R"({"prompt":"x","logprobs":true})"), "logprobs");
  EXPECT_EQ(Complete(R"({"prompt":"x","logprobs":0})")->top_logprobs, 0);
}

TEST(RequestTest, RepeatPenaltyIsAnotherName) {
  EXPECT_FLOAT_EQ(Complete(R"({"prompt":"x","repeat_penalty":1.3})")
                      ->sampling.repetition_penalty,
                  1.3F);
  EXPECT_FLOAT_EQ(
      Complete(
          R"({"prompt":"x","repeat_penalty":1.3,"repetition_penalty":1.1})")
          ->sampling.repetition_penalty,
      1.1F);
  // Values that change nothing are no error.
  EXPECT_TRUE(Complete(R"({"prompt":"x","repeat_penalty":1.0,"typical_p":1.0,
      "mirostat":0,"top_n_sigma":-1,"n_predict":-1,"dry_multiplier":0.0})")
                  .ok());
}

TEST(RequestTest, MaxTokensIsWhatTheContextLeaves) {
  CommonRequest request;
  EXPECT_EQ(*ResolveMaxTokens(request, "prompt", 90, 100), 10);
  request.max_tokens = 4;
  EXPECT_EQ(*ResolveMaxTokens(request, "prompt", 90, 100), 4);
  request.max_tokens = 32000;
  EXPECT_EQ(*ResolveMaxTokens(request, "prompt", 99, 100), 1);
  const ApiOr<std::uint32_t> full =
      ResolveMaxTokens(request, "prompt", 100, 100);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, "context_length_exceeded");
}

TEST(RequestTest, SeedsAreReportableAndGreedyNeedsNone) {
  CommonRequest request;
  EXPECT_EQ(ResolveSeed(request, UINT64_MAX), (std::uint64_t{1} << 53) - 1);
  request.sampling.seed = UINT64_MAX;
  EXPECT_EQ(ResolveSeed(request, 5), UINT64_MAX);
  request.sampling.seed.reset();
  request.sampling.temperature = 0;
  EXPECT_EQ(ResolveSeed(request, 5), 0);
}

}  // namespace
}  // namespace holdfast::openai
