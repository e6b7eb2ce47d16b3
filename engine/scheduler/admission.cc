#include "engine/scheduler/admission.h"

#include <algorithm>

#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

using Reason = Refusal::Reason;

Refusal Invalid(std::string message) {
  return {.reason = Reason::kInvalid, .message = std::move(message)};
}

std::optional<Refusal> CheckIds(const char* field,
                                const std::vector<std::int32_t>& ids,
                                int vocab_size) {
  for (std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Invalid(fmt::format("{} holds id {}, the vocabulary has {}", field,
                                 id, vocab_size));
    }
  }
  return std::nullopt;
}

std::optional<Refusal> CheckParameters(const Request& request, int vocab_size) {
  if (request.max_tokens < 1) {
    return Invalid(fmt::format("max_tokens is {}, must be at least 1",
                               request.max_tokens));
  }
  if (request.top_logprobs &&
      (*request.top_logprobs < 0 || *request.top_logprobs > kMaxTopLogprobs)) {
    return Invalid(fmt::format("top_logprobs is {}, must be in 0 to {}",
                               *request.top_logprobs, kMaxTopLogprobs));
  }
  if (request.stop_strings.size() > kMaxStopStrings) {
    return Invalid(fmt::format("stop_strings has {} entries, at most {} go",
                               request.stop_strings.size(), kMaxStopStrings));
  }
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return Invalid(
          fmt::format("a stop string has {} bytes, must have 1 to {}",
                      stop.size(), kMaxStopStringBytes));
    }
  }
  if (request.thinking) {
    const ThinkingLimit& thinking = *request.thinking;
    if (thinking.tokens < 0 || thinking.open_tag.empty() ||
        thinking.close_tag.empty() || thinking.words.empty()) {
      return Invalid("thinking_budget: tags or words are missing");
    }
    if (thinking.words.size() > kMaxThinkingWords) {
      return Invalid(fmt::format("thinking_budget: {} words, at most {}",
                                 thinking.words.size(), kMaxThinkingWords));
    }
    if (auto refusal =
            CheckIds("thinking_budget", thinking.words, vocab_size)) {
      return refusal;
    }
  }
  if (const auto status = request.sampling.Validate(vocab_size); !status.ok()) {
    return Invalid(std::string(status.message()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> CheckRequest(const Request& request,
                                    const AdmissionLimits& limits) {
  if (request.fingerprint && *request.fingerprint != limits.fingerprint) {
    return Refusal{
        .reason = Reason::kModelChanged,
        .message = "the token ids were made for another model than this one"};
  }
  if (!limits.debug && (request.forced || request.digest)) {
    return Refusal{
        .reason = Reason::kDebugOnly,
        .message = fmt::format("{} needs an engine started with --debug",
                               request.forced ? "forced_ids" : "digest")};
  }
  if (request.prompt.empty()) return Invalid("prompt_ids is empty");
  if (auto bad = CheckIds("prompt_ids", request.prompt, limits.vocab_size)) {
    return bad;
  }
  if (request.forced) {
    if (auto bad = CheckIds("forced_ids", *request.forced, limits.vocab_size)) {
      return bad;
    }
  }
  if (auto bad = CheckParameters(request, limits.vocab_size)) return bad;
  const int tokens = static_cast<int>(request.prompt.size());
  if (tokens < limits.max_context) return std::nullopt;
  // Clients look for both phrases to know that they must shorten the prompt.
  return Refusal{
      .reason = Reason::kContextOverflow,
      .message = fmt::format(
          "the request exceeds the available context size: {} tokens, the "
          "context holds {} (maximum context length is {} tokens)",
          tokens, limits.max_context, limits.max_context),
      .max_context = limits.max_context};
}

std::uint64_t ScratchBytes(const Request& request, int max_context,
                           int free_blocks, std::uint64_t block_bytes) {
  const std::int64_t tokens = std::min<std::int64_t>(
      static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens,
      max_context);
  const std::int64_t blocks =
      (tokens + kBlockTokens - 1) / kBlockTokens - free_blocks;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(blocks, 0)) *
         block_bytes;
}

std::optional<Refusal> CheckScratch(const Request& request, int max_context,
                                    int free_blocks, std::uint64_t block_bytes,
                                    std::uint64_t available_bytes) {
  if (request.cache_mode == CacheMode::kDefault) return std::nullopt;
  const std::uint64_t bytes =
      ScratchBytes(request, max_context, free_blocks, block_bytes);
  if (bytes <= available_bytes / 2) return std::nullopt;
  return Refusal{
      .reason = Reason::kOutOfBlocks,
      .message = fmt::format("a request that leaves no trace needs {} MiB "
                             "outside the pool, {} MiB of memory are available",
                             bytes >> 20, available_bytes >> 20)};
}

}  // namespace holdfast::engine
