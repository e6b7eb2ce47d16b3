// Whatever a client sends is a request or a 400 (404 for the model), never a
// crash, and every error can be written as JSON.
#include <random>
#include <string>
#include <vector>

#include "gateway/openai/json.h"
#include "gateway/openai/request.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

constexpr char kBody[] =
    R"({"model":"tiny","messages":[{"role":"system","content":"é"},)"
    R"({"role":"user","content":[{"type":"text","text":"a\n"}]},)"
    R"({"role":"assistant","content":null,"reasoning_content":"r",)"
    R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f",)"
    R"("arguments":"{\"a\":1}"}}]},{"role":"tool","content":"t",)"
    R"("tool_call_id":"c"}],"prompt":[1,2],"temperature":0.5,"top_p":0.9,)"
    R"("top_k":3,"min_p":0.1,"seed":1,"max_tokens":5,"stop":["a","b"],)"
    R"("logit_bias":{"5":1.5},"logprobs":true,"top_logprobs":2,"n":1,)"
    R"("stream":true,"stream_options":{"include_usage":true},)"
    R"("tools":[{"type":"function","function":{"name":"f"}}],)"
    R"("tool_choice":"auto","response_format":{"type":"text"},)"
    R"("chat_template_kwargs":{"a":false},"session_id":"s","cache_salt":"t",)"
    R"("holdfast":{"cache":"default","digest":true,"force":{"text":"x",)"
    R"("tool_calls":[{"name":"f","arguments":{}}]}}})";

struct Counts {
  int requests = 0;
  int errors = 0;
};

template <typename Request>
void Judge(const ApiOr<Request>& request, Counts* counts) {
  if (request.ok()) {
    ++counts->requests;
    return;
  }
  ++counts->errors;
  const ApiError& error = request.error();
  ASSERT_TRUE(error.http_status == 400 ||
              (error.http_status == 404 && error.param == "model"));
  ASSERT_FALSE(error.message.empty());
  ASSERT_TRUE(ParseJson(Dump(ErrorJson(error))).ok());
}

void Try(const Json& body, Counts* counts) {
  for (const bool debug : {false, true}) {
    const ServerFacts facts{"tiny", 100, debug};
    Judge(ParseChatRequest(body, facts), counts);
    Judge(ParseCompletionRequest(body, facts), counts);
  }
}

Json RandomValue(std::mt19937* random) {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           false,
                                           0,
                                           1,
                                           -1,
                                           2,
                                           1.5,
                                           -0.5,
                                           1e300,
                                           18446744073709551615U,
                                           "",
                                           "x",
                                           "text",
                                           "user",
                                           "auto",
                                           "\xF0\x9F\x98\x80",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1, "a"}),
                                           Json{{"type", "text"}},
                                           Json::array({Json::object()})};
  return values[(*random)() % values.size()];
}

// Every place of the tree that may be replaced.
void Places(Json* json, std::vector<Json*>* places) {
  places->push_back(json);
  if (json->is_structured()) {
    for (Json& child : *json) Places(&child, places);
  }
}

TEST(RequestFuzzTest, ValuesReplacedAndFieldsRemoved) {
  const ApiOr<Json> good = ParseJson(kBody);
  ASSERT_TRUE(good.ok()) << good.error().message;
  std::mt19937 random(11);
  Counts counts;
  for (int round = 0; round < 10'000; ++round) {
    Json body = *good;
    for (std::size_t i = 1 + random() % 3; i > 0; --i) {
      std::vector<Json*> places;
      Places(&body, &places);
      Json* place = places[random() % places.size()];
      if (place->is_object() && !place->empty() && random() % 2 == 0) {
        place->erase(std::next(place->begin(), random() % place->size()));
      } else {
        *place = RandomValue(&random);
      }
    }
    Try(body, &counts);
  }
  EXPECT_GT(counts.requests, 1000);
  EXPECT_GT(counts.errors, 5000);
}

TEST(RequestFuzzTest, BytesChanged) {
  std::mt19937 random(12);
  Counts counts;
  int parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = kBody;
    for (std::size_t i = 1 + random() % 2; i > 0; --i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 8));
      }
    }
    const ApiOr<Json> body = ParseJson(text);
    Judge(body, &counts);
    if (!body.ok()) continue;
    ++parsed;
    Try(*body, &counts);
  }
  EXPECT_GT(parsed, 1000);
  EXPECT_GT(counts.errors, 10'000);
}

}  // namespace
}  // namespace holdfast::openai
