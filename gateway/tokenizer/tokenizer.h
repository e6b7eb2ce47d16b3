// Byte-level BPE, equal id for id to Hugging Face `tokenizers` on the files
// that a TokenizerSpec can describe.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_TOKENIZER_H_
#define HOLDFAST_GATEWAY_TOKENIZER_TOKENIZER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway {

struct EncodeOptions {
  // Starts with the bos id. Where the text already starts with its token, the
  // caller leaves this off.
  bool add_bos = false;
  // Texts of added tokens (special ones and others) become their ids. Off:
  // they are text like any other.
  bool parse_added = true;
  // A character that ProtectSpecials has put into user text: it keeps added
  // tokens from matching across it, then vanishes. 0: none. With a sentinel,
  // added tokens match the text as written, never its normalized form.
  char32_t sentinel = 0;

  friend bool operator==(const EncodeOptions&, const EncodeOptions&) = default;
};

// Where an encoding ends before its text does.
struct EncodeLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  // More ids are not wanted: OUT_OF_RANGE once it is certain that there would
  // be, and never for a text that has no more.
  std::size_t most_ids = kNone;
  // The same of the ids of one piece. They are merged together, at a cost of n
  // log n and some 30 times the bytes, so it is asked before.
  std::size_t most_piece_ids = kNone;
  // CANCELLED soon after it becomes true. Null: never; outlives the encoding.
  const std::atomic<bool>* stop = nullptr;

  bool stopped() const {
    return stop != nullptr && stop->load(std::memory_order_relaxed);
  }
  bool any() const { return stop != nullptr || most_ids != kNone; }
};

// A place where an encoding may be taken up again: the ids of text[0, offset)
// are the first `ids` ids of every text that shares the first `need` bytes,
// and the rest of such a text can be encoded from `offset` on by itself.
struct Checkpoint {
  std::size_t offset = 0;
  std::size_t need = 0;  // >= offset
  std::size_t ids = 0;
};

// Immutable; any number of threads may use one at the same time.
class Tokenizer {
 public:
  // An error names the entry of the spec that cannot be honoured.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // INVALID_ARGUMENT with the byte offset when `text` is not valid UTF-8;
  // RESOURCE_EXHAUSTED when a pre-tokenizer pattern exceeds its match limit.
  absl::StatusOr<std::vector<std::uint32_t>> Encode(
      std::string_view text, const EncodeOptions& options,
      const EncodeLimits& limits = {}) const;

  // Appends the ids of text[begin, end) to `ids`, `begin` being 0 or a
  // checkpoint's offset (no bos is added past 0), and the checkpoints passed
  // to `checkpoints` (null: none wanted; ascending). On error both are
  // unspecified.
  absl::Status EncodeFrom(std::string_view text, std::size_t begin,
                          const EncodeOptions& options,
                          std::vector<std::uint32_t>* ids,
                          std::vector<Checkpoint>* checkpoints,
                          const EncodeLimits& limits = {}) const;

  // The bytes of the tokens one after the other: not always valid UTF-8
  // (DecodeText replaces what is invalid by U+FFFD). Ids outside the
  // vocabulary have no bytes.
  std::string Decode(std::span<const std::uint32_t> ids,
                     bool skip_special) const;
  std::string DecodeText(std::span<const std::uint32_t> ids,
                         bool skip_special) const;

  // Valid while the tokenizer lives; empty for ids outside the vocabulary.
  std::string_view TokenBytes(std::uint32_t id) const;
  bool IsSpecial(std::uint32_t id) const;
  bool IsAdded(std::uint32_t id) const;
  bool IsEos(std::uint32_t id) const;
  // One more than the highest id.
  std::size_t vocab_size() const;
  // The id of the added token with exactly this text.
  std::optional<std::uint32_t> FindAdded(std::string_view content) const;
  // Texts of all added tokens, special or not: what ProtectSpecials breaks.
  const std::vector<std::string>& added_texts() const;
  // bos, eos ids, chat template, pad and unk tokens, ...
  const TokenizerSpec& spec() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_TOKENIZER_H_
