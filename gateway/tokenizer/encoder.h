// One encoding of one text: what Tokenizer::EncodeFrom does.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_ENCODER_H_
#define HOLDFAST_GATEWAY_TOKENIZER_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gateway/tokenizer/added_tokens.h"
#include "gateway/tokenizer/bpe.h"
#include "gateway/tokenizer/pre_tokenizer.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {

// What an encoding reads; shared by all of them.
struct EncoderTables {
  bool nfc = false;
  AddedTokens added;  // those matched on the text as it is
  // Those matched on the normalized text: as they are written, and normalized.
  AddedTokens normalized_as_written;
  AddedTokens normalized;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
};

// For one call on one thread.
class Encoder {
 public:
  // `checkpoints` may be null. All must outlive it.
  Encoder(const EncoderTables& tables, std::string_view text,
          const EncodeOptions& options, const EncodeLimits& limits,
          std::vector<std::uint32_t>* ids, std::vector<Checkpoint>* checkpoints)
      : tables_(tables),
        text_(text),
        options_(options),
        limits_(limits),
        ids_(*ids),
        checkpoints_(checkpoints) {
    pieces_.stop = limits.stop;
  }

  // Appends ids and checkpoints of text[begin, end), which must be valid.
  absl::Status Run(std::size_t begin);

 private:
  // Text between two added tokens.
  absl::Status EncodeBetween(std::size_t begin, std::size_t end);
  absl::Status EncodeWithNormalized(std::string_view text);
  absl::Status EncodeInWindows(std::size_t begin, std::size_t end);
  // The whole of `clean`.
  absl::Status EncodeClean(std::string_view clean);
  // The first `count` of pieces_.
  absl::Status EncodePieces(std::size_t count);
  absl::Status AddId(std::uint32_t id);

  // The first place at or after `at` where a window may end; `end` when there
  // is none before.
  std::size_t WindowEnd(std::size_t at, std::size_t end) const;
  // Encodes the pieces of text[begin, window_end), of which more follows, up
  // to the last place from which the rest can be encoded by itself. Returns
  // that place: `begin` when there is none yet.
  absl::StatusOr<std::size_t> EncodeOpenWindow(std::size_t begin,
                                               std::size_t window_end);
  void AddCheckpoint(std::size_t offset, std::size_t need);

  const EncoderTables& tables_;
  const std::string_view text_;
  const EncodeOptions& options_;
  const EncodeLimits& limits_;
  std::vector<std::uint32_t>& ids_;
  std::vector<Checkpoint>* checkpoints_;
  PreTokenizer::Pieces pieces_;
  Bpe::Scratch bpe_scratch_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_ENCODER_H_
