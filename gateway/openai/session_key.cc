#include "gateway/openai/session_key.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "shared/sha256.h"

namespace holdfast::openai {
namespace {

constexpr std::size_t kMaxBytes = 512;
// Of the digest of a first user message: enough to tell conversations apart.
constexpr std::size_t kDigestDigits = 32;

struct ClientHeader {
  const char* session;
  // Conversations within the session; null: there are none.
  const char* within;
};

constexpr std::array kClientHeaders = {
    ClientHeader{"x-session-affinity", nullptr},  // opencode
    ClientHeader{"x-claude-code-session-id", "x-claude-code-agent-id"},
    ClientHeader{"session-id", "thread-id"},  // Codex
    ClientHeader{"x-openwebui-chat-id", nullptr},
};

bool Printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string FirstUserKey(const Json& messages) {
  for (const Json& message : messages) {
    if (message.at("role") != "user") continue;
    const std::string text =
        message.at("content").get_ref<const std::string&>();
    const Sha256Digest digest = Sha256().Update(text).Finish();
    return "first-user:" + ToHex(digest).substr(0, kDigestDigits);
  }
  return {};
}

ApiOr<std::string> ToldKey(const CommonRequest& request,
                           const HeaderKeys& headers) {
  if (!request.session_id.empty()) return request.session_id;
  const std::string& given = headers.explicit_key;
  if (given.size() > kMaxBytes) {
    return FieldError("X-Session-Id",
                      fmt::format("is over {} bytes long", kMaxBytes));
  }
  if (!Printable(given))
    return FieldError("X-Session-Id", "must be printable ASCII");
  if (!given.empty()) return given;
  if (!headers.client_key.empty()) return headers.client_key;
  return request.cache_key;
}

}  // namespace

HeaderKeys SessionHeaders(const FindHeader& find) {
  HeaderKeys keys;
  if (const auto given = find("x-session-id")) keys.explicit_key = *given;
  for (const ClientHeader& header : kClientHeaders) {
    const auto session = find(header.session);
    if (!session.has_value() || session->empty()) continue;
    std::string key(*session);
    if (header.within != nullptr) {
      const auto within = find(header.within);
      // Codex names the session's own thread like the session.
      if (within.has_value() && !within->empty() && *within != *session)
        key += fmt::format("/{}", *within);
    }
    if (key.size() > kMaxBytes || !Printable(key)) continue;
    keys.client_key = std::move(key);
    break;
  }
  return keys;
}

ApiOr<std::string> SessionKey(const ChatRequest& request,
                              const HeaderKeys& headers) {
  auto told = ToldKey(request, headers);
  if (!told.ok() || !told->empty()) return told;
  return FirstUserKey(request.messages);
}

ApiOr<std::string> SessionKey(const CompletionRequest& request,
                              const HeaderKeys& headers) {
  return ToldKey(request, headers);
}

}  // namespace holdfast::openai
