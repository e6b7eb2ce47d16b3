#include "gateway/openai/logprobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gateway/openai/json.h"

namespace holdfast::openai {
namespace {

// JSON has no -Infinity; clients know this number for it.
constexpr float kLowest = -9999;

float Finite(float logprob) { return std::max(logprob, kLowest); }

// Bytes that are no text by themselves become U+FFFD, so that equal texts of
// different tokens may occur; "bytes" tells them apart.
std::string Text(const std::string& bytes) {
  const std::string quoted = Dump(Json(bytes));
  return Json::parse(quoted).get<std::string>();
}

Json Bytes(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) {
    list.push_back(static_cast<unsigned char>(byte));
  }
  return list;
}

Json ChatCandidate(const Candidate& candidate) {
  return {{"token", Text(candidate.bytes)},
          {"logprob", Finite(candidate.logprob)},
          {"bytes", Bytes(candidate.bytes)}};
}

}  // namespace

Json ChatLogprobs(const std::vector<TokenLogprobs>& tokens) {
  Json content = Json::array();
  for (const TokenLogprobs& token : tokens) {
    Json entry = ChatCandidate(token.sampled);
    Json top = Json::array();
    for (const Candidate& candidate : token.top) {
      top.push_back(ChatCandidate(candidate));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json CompletionLogprobs(const std::vector<TokenLogprobs>& tokens,
                        std::uint64_t offset) {
  Json texts = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprobs& token : tokens) {
    texts.push_back(Text(token.sampled.bytes));
    logprobs.push_back(Finite(token.sampled.logprob));
    offsets.push_back(offset);
    offset += CharactersStarted(token.sampled.bytes);
    Json top = Json::object();
    for (const Candidate& candidate : token.top) {
      // Of two tokens that look alike the more likely one comes first, stays.
      top.emplace(Text(candidate.bytes), Finite(candidate.logprob));
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::uint64_t CharactersStarted(std::string_view bytes) {
  return static_cast<std::uint64_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
      }));
}

}  // namespace holdfast::openai
