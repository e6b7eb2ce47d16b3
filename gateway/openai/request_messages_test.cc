#include <string>

#include "gateway/openai/json.h"
#include "gateway/openai/request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using ::testing::HasSubstr;

ApiOr<ChatRequest> Send(const std::string& messages) {
  const ApiOr<Json> body = ParseJson("{\"messages\":" + messages + "}");
  if (!body.ok()) return body.error();
  return ParseChatRequest(*body, {"tiny", 1000, false});
}

std::string Parsed(const std::string& messages) {
  const ApiOr<ChatRequest> request = Send(messages);
  EXPECT_TRUE(request.ok()) << messages << ": " << request.error().message;
  return request.ok() ? Dump(request->messages) : "";
}

void ExpectRefused(const std::string& messages, const std::string& param) {
  const ApiOr<ChatRequest> request = Send(messages);
  ASSERT_FALSE(request.ok()) << messages;
  EXPECT_EQ(request.error().http_status, 400);
  EXPECT_EQ(request.error().param, param) << messages;
}

TEST(MessagesTest, PlainOnesStayAsTheyAre) {
  const std::string messages =
      R"([{"role":"system","content":"s"},{"role":"user","content":"u"},)"
      R"({"role":"assistant","content":"a"},{"role":"user","content":"v"},)"
      R"({"role":"user","content":"w"},{"role":"system","content":"t"}])";
  EXPECT_EQ(Parsed(messages), messages);
}

TEST(MessagesTest, DeveloperBecomesSystem) {
  EXPECT_EQ(Parsed(R"([{"role":"developer","content":"d"}])"),
            R"([{"role":"system","content":"d"}])");
}

TEST(MessagesTest, PartsAreJoinedByNewlines) {
  EXPECT_EQ(Parsed(R"([{"role":"user","content":[
                {"type":"text","text":"a","cache_control":{"type":"x"}},
                {"type":"input_text","text":""},
                {"type":"output_text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\n\nb"}])");
  EXPECT_EQ(Parsed(R"([{"role":"user","content":[]}])"),
            R"([{"role":"user","content":""}])");
  EXPECT_EQ(Parsed(R"([{"role":"assistant","content":[
                {"type":"refusal","refusal":"no"}]}])"),
            R"([{"role":"assistant","content":"no"}])");
}

TEST(MessagesTest, NullContentIsEmpty) {
  EXPECT_EQ(Parsed(R"([{"role":"user","content":null},{"role":"assistant"}])"),
            R"([{"role":"user","content":""},)"
            R"({"role":"assistant","content":""}])");
}

TEST(MessagesTest, KnownFieldsStayAndOthersGo) {
  EXPECT_EQ(Parsed(R"([{"role":"user","content":"x","name":"n","id":"i",
                        "tool_call_id":"t","reasoning":"r"},
                       {"role":"tool","content":"y","tool_call_id":"t"},
                       {"role":"assistant","content":"z","refusal":null,
                        "reasoning":"r1"},
                       {"role":"assistant","content":"z","reasoning":"r1",
                        "reasoning_content":"r2","tool_calls":[]}])"),
            R"([{"role":"user","content":"x","name":"n"},)"
            R"({"role":"tool","content":"y","tool_call_id":"t"},)"
            R"({"role":"assistant","content":"z","reasoning_content":"r1"},)"
            R"({"role":"assistant","content":"z","reasoning_content":"r2"}])");
}

std::string Call(const std::string& arguments) {
  return R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c",)"
         R"("index":0,"type":"function","function":{"name":"f",)"
         R"("arguments":)" +
         arguments + "}}]}]";
}

std::string ParsedCall(const std::string& arguments) {
  return R"([{"role":"assistant","content":"","tool_calls":[{"id":"c",)"
         R"("type":"function","function":{"name":"f","arguments":)" +
         arguments + "}}]}]";
}

TEST(MessagesTest, ArgumentsBecomeAnObjectWhereTheyHoldOne) {
  EXPECT_EQ(Parsed(Call(R"("{\"z\": 1, \"a\": [2]}")")),
            ParsedCall(R"({"z":1,"a":[2]})"));
  EXPECT_EQ(Parsed(Call(R"({"z":1})")), ParsedCall(R"({"z":1})"));
  EXPECT_EQ(Parsed(Call(R"("")")), ParsedCall("{}"));
  EXPECT_EQ(Parsed(Call("null")), ParsedCall("{}"));
  for (const char* text : {R"("{\"cut")", R"("[1]")", R"("plain")"}) {
    EXPECT_EQ(Parsed(Call(text)), ParsedCall(text));
  }
  const std::string deep = std::string("\"") + std::string(1000, '[') + "\"";
  EXPECT_EQ(Parsed(Call(deep)), ParsedCall(deep));
}

TEST(MessagesTest, BrokenOnesNameTheField) {
  ExpectRefused("null", "messages");
  ExpectRefused("{}", "messages");
  ExpectRefused("\"hi\"", "messages");
  ExpectRefused("[]", "messages");
  ExpectRefused("[7]", "messages[0]");
  ExpectRefused("[null]", "messages[0]");
  ExpectRefused(R"([{"content":"x"}])", "messages[0].role");
  ExpectRefused(R"([{"role":7,"content":"x"}])", "messages[0].role");
  ExpectRefused(R"([{"role":"bot","content":"x"}])", "messages[0].role");
  ExpectRefused(R"([{"role":"user"}])", "messages[0].content");
  ExpectRefused(R"([{"role":"user","content":"x"},{"role":"user"}])",
                "messages[1].content");
  ExpectRefused(R"([{"role":"user","content":7}])", "messages[0].content");
  ExpectRefused(R"([{"role":"user","content":{}}])", "messages[0].content");
  ExpectRefused(R"([{"role":"user","content":["x"]}])",
                "messages[0].content[0]");
  ExpectRefused(R"([{"role":"user","content":[{"text":"x"}]}])",
                "messages[0].content[0].type");
  ExpectRefused(R"([{"role":"user","content":[{"type":"text"}]}])",
                "messages[0].content[0].text");
  ExpectRefused(R"([{"role":"user","content":[{"type":"text","text":7}]}])",
                "messages[0].content[0].text");
  ExpectRefused(R"([{"role":"user","content":"x","name":7}])",
                "messages[0].name");
  ExpectRefused(R"([{"role":"tool","content":"x","tool_call_id":[]}])",
                "messages[0].tool_call_id");
  ExpectRefused(R"([{"role":"assistant","reasoning_content":7}])",
                "messages[0].reasoning_content");
}

TEST(MessagesTest, BrokenToolCallsNameTheField) {
  const auto call = [](const std::string& calls) {
    return R"([{"role":"assistant","tool_calls":)" + calls + "}]";
  };
  ExpectRefused(call("7"), "messages[0].tool_calls");
  ExpectRefused(call("[7]"), "messages[0].tool_calls[0]");
  ExpectRefused(call("[{}]"), "messages[0].tool_calls[0].function");
  ExpectRefused(call(R"([{"id":7,"function":{"name":"f"}}])"),
                "messages[0].tool_calls[0].id");
  ExpectRefused(call(R"([{"function":{}}])"),
                "messages[0].tool_calls[0].function.name");
  ExpectRefused(call(R"([{"function":{"name":"f","arguments":7}}])"),
                "messages[0].tool_calls[0].function.arguments");
}

TEST(MessagesTest, PartsOfOtherKindsAreRefusedByName) {
  for (const char* type :
       {"image_url", "input_image", "input_audio", "video_url", "file"}) {
    const ApiOr<ChatRequest> request =
        Send(std::string(R"([{"role":"user","content":[{"type":"text",)"
                         R"("text":"a"},{"type":")") +
             type + "\"}]}]");
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().param, "messages[0].content[1]");
    EXPECT_THAT(request.error().message, HasSubstr(type));
  }
}

}  // namespace
}  // namespace holdfast::openai
