// Incremental tokenization: a prompt that shares its beginning with an earlier
// one is tokenized from the last boundary that the difference cannot move.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_PROMPT_CACHE_H_
#define HOLDFAST_GATEWAY_TOKENIZER_PROMPT_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {

struct EncodedPrompt {
  std::vector<std::uint32_t> ids;
  std::size_t reused_bytes = 0;   // of the text, taken from an earlier prompt
  std::size_t encoded_bytes = 0;  // of the text, tokenized now
};

// Always the ids, or the error, that Tokenizer::Encode gives. Thread-safe (one
// short lock; tokenization runs outside it); the tokenizer must outlive it.
class PromptCache {
 public:
  struct Limits {
    std::size_t prompts = 16;
    std::size_t bytes = std::size_t{64} << 20;  // text, ids and checkpoints
  };

  PromptCache(const Tokenizer& tokenizer, Limits limits)
      : tokenizer_(tokenizer), limits_(limits) {}

  absl::StatusOr<EncodedPrompt> Encode(std::string_view text,
                                       const EncodeOptions& options,
                                       const EncodeLimits& limits = {});

  // What the kept prompts take now.
  std::size_t bytes() const;
  std::size_t prompts() const;

 private:
  struct Entry {
    std::string text;
    EncodeOptions options;
    std::vector<std::uint32_t> ids;
    std::vector<Checkpoint> checkpoints;
    std::size_t Bytes() const;
  };
  // Where to go on, and what to go on from.
  struct Start {
    std::shared_ptr<const Entry> entry;  // null: from the beginning
    std::size_t checkpoints = 0;         // how many of the entry's hold
    bool extends = false;                // the text goes on where it ended
  };

  Start FindStart(std::string_view text, const EncodeOptions& options);
  void Keep(std::shared_ptr<const Entry> entry, const Start& start);

  const Tokenizer& tokenizer_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const Entry>> entries_;  // most recent first
  std::size_t bytes_ = 0;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_PROMPT_CACHE_H_
