// Which conversation a request belongs to, as clients tell it. A key is a hint
// for what is kept: what is reused is decided by tokens alone. Pure functions.
#ifndef HOLDFAST_GATEWAY_OPENAI_SESSION_KEY_H_
#define HOLDFAST_GATEWAY_OPENAI_SESSION_KEY_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/openai/error.h"
#include "gateway/openai/request.h"

namespace holdfast::openai {

// What the headers of a request say.
struct HeaderKeys {
  std::string explicit_key;  // X-Session-Id; empty: none
  std::string client_key;    // of a client that is known; empty: none
};

// The value of a header by its name in lower case.
using FindHeader =
    std::function<std::optional<std::string_view>(std::string_view name)>;

// opencode, Claude Code (its agents are conversations of their own), Codex (so
// are its threads), Open WebUI. A client's value that is over 512 bytes or not
// printable ASCII counts as absent; an explicit one is kept as it is.
HeaderKeys SessionHeaders(const FindHeader& find);

// The first that is there: the body's session_id; X-Session-Id; a client's
// header; prompt_cache_key or promptCacheKey; a digest of the first user
// message, so that the turns of one conversation have one key. Empty: none of
// them (completions). 400 for an X-Session-Id that is over 512 bytes or not
// printable ASCII.
ApiOr<std::string> SessionKey(const ChatRequest& request,
                              const HeaderKeys& headers);
ApiOr<std::string> SessionKey(const CompletionRequest& request,
                              const HeaderKeys& headers);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_SESSION_KEY_H_
