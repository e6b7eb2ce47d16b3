#include "gateway/openai/session_key.h"

#include <map>
#include <string>
#include <utility>

#include "gateway/openai/json.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using Headers = std::map<std::string, std::string, std::less<>>;

constexpr char kMessages[] =
    R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}])";

HeaderKeys Keys(const Headers& headers) {
  return SessionHeaders(
      [&](std::string_view name) -> std::optional<std::string_view> {
        const auto found = headers.find(name);
        if (found == headers.end()) return std::nullopt;
        return found->second;
      });
}

ChatRequest Chat(const std::string& body) {
  auto request = ParseChatRequest(Json::parse(body), {"tiny", 1000, false});
  EXPECT_TRUE(request.ok()) << body;
  return *std::move(request);
}

// `fields` stand in the body before the messages.
std::string ChatKey(const std::string& fields, const Headers& headers) {
  const auto key =
      SessionKey(Chat("{" + fields + kMessages + "}"), Keys(headers));
  EXPECT_TRUE(key.ok());
  return *key;
}

TEST(SessionKeyTest, TheFirstThatIsPresent) {
  const std::string long_text(513, 'x');
  const struct {
    const char* what;
    std::string fields;
    Headers headers;
    std::string key;
  } cases[] = {
      {"body",
       R"("session_id":"b","prompt_cache_key":"k",)",
       {{"x-session-id", "h"}, {"x-session-affinity", "a"}},
       "b"},
      {"header",
       R"("prompt_cache_key":"k",)",
       {{"x-session-id", "h"}, {"x-session-affinity", "a"}},
       "h"},
      {"opencode",
       R"("promptCacheKey":"k",)",
       {{"x-session-affinity", "ses_1"}, {"x-parent-session-id", "ses_0"}},
       "ses_1"},
      {"opencode of 1.17 on",
       "",
       {{"x-session-affinity", "ses_1"}, {"x-session-id", "ses_1"}},
       "ses_1"},
      {"Claude Code", "", {{"x-claude-code-session-id", "c"}}, "c"},
      {"an agent of Claude Code",
       "",
       {{"x-claude-code-session-id", "c"}, {"x-claude-code-agent-id", "a"}},
       "c/a"},
      {"an agent without a session",
       R"("prompt_cache_key":"k",)",
       {{"x-claude-code-agent-id", "a"}},
       "k"},
      {"Codex",
       R"("prompt_cache_key":"k",)",
       {{"session-id", "s"}, {"thread-id", "s"}},
       "s"},
      {"another thread of Codex",
       "",
       {{"session-id", "s"}, {"thread-id", "t"}},
       "s/t"},
      {"Open WebUI",
       "",
       {{"x-openwebui-chat-id", "w"}, {"x-openwebui-message-id", "m"}},
       "w"},
      {"prompt_cache_key",
       R"("prompt_cache_key":"k","promptCacheKey":"p",)",
       {},
       "k"},
      {"promptCacheKey", R"("promptCacheKey":"p",)", {}, "p"},
      {"a client's key that is none",
       R"("prompt_cache_key":"k",)",
       {{"x-session-affinity", long_text},
        {"session-id", "a\x01"},
        {"x-openwebui-chat-id", ""}},
       "k"},
      {"empty ones",
       R"("session_id":"","promptCacheKey":"p",)",
       {{"x-session-id", ""}},
       "p"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(ChatKey(c.fields, c.headers), c.key) << c.what;
}

TEST(SessionKeyTest, ElseTheFirstUserMessage) {
  const std::string key = ChatKey("", {});
  EXPECT_TRUE(key.starts_with("first-user:")) << key;
  EXPECT_EQ(key.size(), 43u);
  const auto of = [](const std::string& messages) {
    return *SessionKey(Chat(R"({"messages":[)" + messages + "]}"),
                       HeaderKeys());
  };
  // Later turns and another system message are of the same conversation, and
  // text in parts is the same text.
  EXPECT_EQ(of(R"({"role":"user","content":"u"})"), key);
  EXPECT_EQ(of(R"({"role":"system","content":"t"},
                  {"role":"user","content":[{"type":"text","text":"u"}]},
                  {"role":"assistant","content":"a"},
                  {"role":"user","content":"v"})"),
            key);
  EXPECT_NE(of(R"({"role":"user","content":"U"})"), key);
  EXPECT_EQ(of(R"({"role":"system","content":"u"})"), "");
  // What cannot be a key is as good as absent.
  EXPECT_EQ(ChatKey(R"("prompt_cache_key":7,"promptCacheKey":"",)", {}), key);
  EXPECT_EQ(
      ChatKey(R"("prompt_cache_key":")" + std::string(513, 'x') + "\",", {}),
      key);
}

TEST(SessionKeyTest, CompletionsHaveNoMessages) {
  CompletionRequest request;
  EXPECT_EQ(*SessionKey(request, HeaderKeys()), "");
  EXPECT_EQ(*SessionKey(request, Keys({{"session-id", "s"}})), "s");
  request.cache_key = "k";
  EXPECT_EQ(*SessionKey(request, HeaderKeys()), "k");
}

TEST(SessionKeyTest, AnExplicitKeyThatIsNoneIsRefused) {
  const CompletionRequest request;
  EXPECT_EQ(SessionKey(request, Keys({{"x-session-id", std::string(513, 'x')}}))
                .error()
                .param,
            "X-Session-Id");
  EXPECT_FALSE(SessionKey(request, Keys({{"x-session-id", "a\x80"}})).ok());
}

}  // namespace
}  // namespace holdfast::openai
