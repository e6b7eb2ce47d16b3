// POST /tokenize and /detokenize.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "boost/asio/awaitable.hpp"
#include "gateway/openai/error.h"
#include "gateway/openai/json.h"
#include "gateway/openai/prompt.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/engine_wait.h"
#include "gateway/service/replies.h"
#include "gateway/service/served_model.h"
#include "gateway/service/workers.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using openai::ApiError;
using openai::ApiOr;
using openai::FieldError;
using openai::Json;

ApiOr<bool> Flag(const Json& body, const char* name, bool absent) {
  const auto field = body.find(name);
  if (field == body.end()) return absent;
  if (!field->is_boolean()) return FieldError(name, "must be a boolean");
  return field->get<bool>();
}

// The text is encoded as a prompt of /v1/completions is.
// A text that could not be a prompt is refused like one.
ApiOr<Json> Tokenize(const Json& body, const ServedModel& model,
                     std::uint32_t context_tokens,
                     const std::atomic<bool>& gone) {
  const auto text =
      body.contains("content") ? body.find("content") : body.find("prompt");
  if (text == body.end()) return FieldError("content", "is missing");
  if (!text->is_string()) return FieldError("content", "must be a string");
  const auto add_special = Flag(body, "add_special", false);
  if (!add_special.ok()) return add_special.error();
  const auto parse_special = Flag(body, "parse_special", true);
  if (!parse_special.ok()) return parse_special.error();
  const auto with_pieces = Flag(body, "with_pieces", false);
  if (!with_pieces.ok()) return with_pieces.error();

  const Tokenizer& tokenizer = model.tokenizer();
  openai::PromptParts parts = model.parts();
  parts.context_tokens = context_tokens;
  parts.stop = &gone;
  EncodeOptions options;
  options.add_bos = *add_special && tokenizer.spec().add_bos;
  options.parse_added = *parse_special;
  const auto ids = tokenizer.Encode(text->get_ref<const std::string&>(),
                                    options, openai::LimitsOf(parts));
  if (!ids.ok()) return openai::FromStatus(ids.status(), "content");
  Json tokens = Json::array();
  for (const std::uint32_t id : *ids) {
    if (!*with_pieces) {
      tokens.push_back(id);
      continue;
    }
    // A piece need not be UTF-8 by itself: such a one is a list of bytes.
    const std::string piece(tokenizer.TokenBytes(id));
    Json entry{{"id", id}};
    if (ValidUtf8Bytes(piece) == piece.size()) {
      entry["piece"] = piece;
    } else {
      entry["piece"] = std::vector<std::uint8_t>(piece.begin(), piece.end());
    }
    tokens.push_back(std::move(entry));
  }
  return Json{{"tokens", std::move(tokens)},
              {"count", ids->size()},
              {"max_model_len", context_tokens}};
}

ApiOr<Json> Detokenize(const Json& body, const ServedModel& model,
                       std::uint32_t vocab_size) {
  const auto tokens = body.find("tokens");
  if (tokens == body.end()) return FieldError("tokens", "is missing");
  if (!tokens->is_array())
    return FieldError("tokens", "must be an array of token ids");
  std::vector<std::uint32_t> ids;
  for (const Json& token : *tokens) {
    if (!token.is_number_unsigned() ||
        token.get<std::uint64_t>() >= vocab_size) {
      return FieldError("tokens[" + std::to_string(ids.size()) + "]",
                        "is no token id of this model");
    }
    ids.push_back(token.get<std::uint32_t>());
  }
  const std::string text =
      model.tokenizer().DecodeText(ids, /*skip_special=*/false);
  return Json{{"content", text}, {"prompt", text}};
}

asio::awaitable<void> Run(Call call, bool tokenize) {
  auto view = co_await WaitForEngine(call.app, call.exchange);
  if (!view.ok()) {
    ApiError error = view.error();
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  const std::string body = std::move(call.exchange.request().body);
  const GoneFlag flag(call.exchange);
  auto answer = co_await OnWorker(*call.app.workers, [&]() -> ApiOr<Json> {
    if (flag.gone()) return openai::InternalError("the client has gone");
    auto json = openai::ParseJson(body);
    if (!json.ok()) return json.error();
    if (!json->is_object())
      return FieldError("", "the body must be a JSON object");
    const v1::EngineStatus& status = view->status;
    return tokenize ? Tokenize(*json, *view->model, status.max_context_tokens(),
                               flag.gone())
                    : Detokenize(*json, *view->model, status.vocab_size());
  });
  if (!answer.ok()) {
    ApiError error = answer.error();
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  http::Response response = JsonResponse(200, *answer);
  co_await Send(call.exchange, call.record, std::move(response));
}

}  // namespace

asio::awaitable<void> TokenizeText(Call call) { return Run(call, true); }

asio::awaitable<void> DetokenizeIds(Call call) { return Run(call, false); }

}  // namespace holdfast::gateway
