// What tokenizer_config.json and generation_config.json add to a tokenizer.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/bpe_vocabulary.h"
#include "engine/model/message.h"
#include "engine/model/tokenizer_files.h"

namespace holdfast::model {
namespace {

using kernels::InvalidArgument;
using kernels::Status;

// A token is written as its text or as an object with the text in `content`.
std::string TokenText(JsonValue json, std::string_view key) {
  auto value = json.FindSet(key);
  if (value && value->is_object()) value = value->FindSet("content");
  return value && value->is_string() ? std::string(value->string()) : "";
}

std::optional<std::uint32_t> FindToken(const TokenizerSpec& spec,
                                       const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  if (found == spec.tokens.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - spec.tokens.begin());
}

Status AddChatTemplate(JsonValue json, const std::string& file,
                       TokenizerSpec* spec) {
  const auto value = json.FindSet("chat_template");
  if (!value) return kernels::OkStatus();
  if (value->is_string()) {
    spec->chat_template = std::string(value->string());
    return kernels::OkStatus();
  }
  for (JsonValue entry : value->elements()) {
    const auto name = entry.FindSet("name");
    const auto text = entry.FindSet("template");
    if (name && name->is_string() && name->string() == "default" && text &&
        text->is_string()) {
      spec->chat_template = std::string(text->string());
      return kernels::OkStatus();
    }
  }
  return InvalidArgument(Message(
      file, ": chat_template is neither text nor a list with a 'default'"));
}

bool IsAdded(const TokenizerSpec& spec, std::uint32_t id) {
  return std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                     [&](const AddedToken& t) { return t.id == id; });
}

// The reference adds these to the tokenizer too.
Status AddDecoderTokens(JsonValue json, const std::string& file,
                        TokenizerSpec* spec) {
  constexpr std::uint32_t kMaxTokens = 1 << 22;
  const auto table = json.FindSet("added_tokens_decoder");
  if (!table) return kernels::OkStatus();
  for (auto [key, entry] : table->members()) {
    AddedToken token;
    const auto [rest, error] =
        std::from_chars(key.data(), key.data() + key.size(), token.id);
    token.content = TokenText(entry, "content");
    const auto flag = [&entry = entry](std::string_view name, bool otherwise) {
      const auto value = entry.FindSet(name);
      return value && value->is_bool() ? value->boolean() : otherwise;
    };
    if (error != std::errc() || rest != key.data() + key.size() ||
        token.content.empty() || token.id >= kMaxTokens) {
      return InvalidArgument(
          Message(file, ": added_tokens_decoder '", key, "' is broken"));
    }
    if (IsAdded(*spec, token.id)) continue;
    if (token.id >= spec->tokens.size()) spec->tokens.resize(token.id + 1);
    std::string& text = spec->tokens[token.id];
    if (const auto other = FindToken(*spec, token.content);
        (!text.empty() && text != token.content) ||
        (other && *other != token.id)) {
      return InvalidArgument(Message(file, ": added token '", token.content,
                                     "' disagrees with tokenizer.json"));
    }
    text = token.content;
    token.special = flag("special", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.normalized = flag("normalized", !token.special);
    token.single_word = flag("single_word", false);
    spec->added_tokens.push_back(std::move(token));
  }
  return kernels::OkStatus();
}

}  // namespace

Status AddTokenizerConfig(JsonValue json, const std::string& file,
                          TokenizerSpec* spec) {
  if (!json.is_object()) {
    return InvalidArgument(Message(file, ": not an object"));
  }
  HF_RETURN_IF_ERROR(AddDecoderTokens(json, file, spec));
  const std::string bos = TokenText(json, "bos_token");
  if (!bos.empty()) {
    const auto id = FindToken(*spec, bos);
    if (!id || (spec->add_bos && spec->bos_id != id)) {
      return InvalidArgument(Message(file, ": bos_token '", bos,
                                     "' disagrees with tokenizer.json"));
    }
    spec->bos_id = id;
    spec->bos_token = bos;
  }
  if (const auto add = json.FindSet("add_bos_token");
      add && add->is_bool() && add->boolean() != spec->add_bos) {
    return InvalidArgument(Message(
        file,
        ": add_bos_token disagrees with tokenizer.json's post_processor"));
  }
  spec->eos_token = TokenText(json, "eos_token");
  if (const auto id = FindToken(*spec, spec->eos_token)) AddEos(*id, spec);
  spec->pad_token = TokenText(json, "pad_token");
  spec->pad_id = FindToken(*spec, spec->pad_token);
  spec->unk_token = TokenText(json, "unk_token");
  return AddChatTemplate(json, file, spec);
}

Status AddEosIds(JsonValue json, const std::string& file, TokenizerSpec* spec) {
  const auto value = json.FindSet("eos_token_id");
  if (!value) return kernels::OkStatus();
  const auto add = [&](JsonValue entry) -> Status {
    const auto id = entry.integer().value_or(-1);
    if (id < 0 || static_cast<std::size_t>(id) >= spec->tokens.size()) {
      return InvalidArgument(
          Message(file, ": eos_token_id is no id of the vocabulary"));
    }
    AddEos(static_cast<std::uint32_t>(id), spec);
    return kernels::OkStatus();
  };
  if (!value->is_array()) return add(*value);
  for (JsonValue entry : value->elements()) HF_RETURN_IF_ERROR(add(entry));
  return kernels::OkStatus();
}

}  // namespace holdfast::model
