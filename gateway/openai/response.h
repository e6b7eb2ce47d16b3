// Bodies and stream chunks of both endpoints. Pure functions of plain values.
#ifndef HOLDFAST_GATEWAY_OPENAI_RESPONSE_H_
#define HOLDFAST_GATEWAY_OPENAI_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/openai/error.h"

namespace holdfast::openai {

// Equal in all chunks of one answer.
struct AnswerHead {
  std::string id;  // ChatId or CompletionId
  std::int64_t created_unix_s = 0;
  std::string model;
  std::string system_fingerprint;  // SystemFingerprint
};

// "chatcmpl-" and "cmpl-" with 32 hex digits of 128 random bits.
std::string ChatId(std::uint64_t random_high, std::uint64_t random_low);
std::string CompletionId(std::uint64_t random_high, std::uint64_t random_low);
// "fp_" and the first 12 hex digits of the engine's fingerprint.
std::string SystemFingerprint(std::string_view fingerprint);
// "call_", 20 hex digits of a chat's id and the number of the call in it.
std::string ToolCallId(std::string_view chat_id, std::size_t index);

enum class FinishReason { kStop, kLength, kToolCalls };

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0;
  // Set where the model's answers have reasoning.
  std::optional<std::uint32_t> reasoning_tokens;
};

// A token's bytes need not be UTF-8 by themselves.
struct Candidate {
  std::string bytes;
  float logprob = 0;
};
struct TokenLogprobs {
  Candidate sampled;
  std::vector<Candidate> top;
};

// SHA-256 of raw bytes as the engine sends them; `resumed` may be empty.
struct DigestReport {
  std::string first_logits;
  std::string resumed;
  std::string prompt_end;
  std::string end;
  std::optional<std::uint32_t> taint;  // grid engines, see engine.proto
};

// The `holdfast` object of an answer.
struct HoldfastReport {
  std::string cache_source;
  std::map<std::string, std::uint32_t> cached_by_source;
  std::string anchor;  // what was resumed at; empty: null
  std::uint32_t resumed_at_tokens = 0;
  std::uint32_t computed_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  double queue_ms = 0;
  std::string miss_reason;            // empty: null
  std::optional<std::uint64_t> seed;  // absent when greedy
  // Chats: the rules by which recorded tokens are served for the client's text
  // (shared/align); none: the prompt is as the client sent it.
  std::optional<std::vector<std::string>> aligned;
  // Debug engines only.
  std::optional<std::vector<std::uint32_t>> prompt_ids;
  std::optional<std::vector<std::uint32_t>> output_ids;
  std::optional<DigestReport> digests;
};
Json HoldfastJson(const HoldfastReport& report);
Json UsageJson(const Usage& usage);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, as far as the model wrote it
};

struct Answer {
  std::string text;
  std::string reasoning;             // chats only
  std::vector<ToolCall> tool_calls;  // chats only
  FinishReason finish = FinishReason::kStop;
  std::optional<std::vector<TokenLogprobs>> logprobs;  // set when asked for
  Usage usage;
  HoldfastReport holdfast;
};

// --- /v1/chat/completions -------------------------------------------------
// A message without text has null content where it has something else.
Json ChatCompletion(const AnswerHead& head, const Answer& answer);
// Streaming, in this order: one role chunk, chunks of reasoning, content and
// tool calls (of each call one with its name, then its arguments in pieces),
// one finish chunk (with the holdfast object), a usage chunk when include_usage
// is set, then [DONE]. With include_usage every other chunk says "usage": null.
class ChatChunks {
 public:
  ChatChunks(AnswerHead head, bool include_usage);
  Json Role() const;
  // Log-probabilities may come with any of these; null: none.
  Json Content(const std::string& text,
               const std::vector<TokenLogprobs>* logprobs) const;
  Json Reasoning(const std::string& text,
                 const std::vector<TokenLogprobs>* logprobs) const;
  Json ToolCallStart(std::size_t index, const std::string& name,
                     const std::vector<TokenLogprobs>* logprobs) const;
  Json ToolCallArguments(std::size_t index, const std::string& text,
                         const std::vector<TokenLogprobs>* logprobs) const;
  Json Finish(FinishReason reason, const HoldfastReport& report) const;
  Json UsageOnly(const Usage& usage) const;

 private:
  Json Chunk() const;
  Json Delta(Json delta, const std::vector<TokenLogprobs>* logprobs) const;
  AnswerHead head_;
  bool include_usage_;
};

// --- /v1/completions -------------------------------------------------------
Json Completion(const AnswerHead& head, const Answer& answer);
class CompletionChunks {
 public:
  CompletionChunks(AnswerHead head, bool include_usage);
  // Counts text offsets of log-probabilities from chunk to chunk.
  Json Text(const std::string& text,
            const std::vector<TokenLogprobs>* logprobs);
  Json Finish(FinishReason reason, const HoldfastReport& report) const;
  Json UsageOnly(const Usage& usage) const;

 private:
  Json Chunk() const;
  AnswerHead head_;
  bool include_usage_;
  std::uint64_t offset_ = 0;
};

// "data: {...}\n\n"
std::string SseData(const Json& json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_RESPONSE_H_
