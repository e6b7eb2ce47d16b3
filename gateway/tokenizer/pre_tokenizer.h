// Cuts text into the pieces inside which tokens are merged.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_PRE_TOKENIZER_H_
#define HOLDFAST_GATEWAY_TOKENIZER_PRE_TOKENIZER_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/tokenizer/regex.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway {

// Immutable; any number of threads, each with its Pieces.
class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> Create(
      const std::vector<PreTokenizerStep>& steps);

  // Pieces of a text, in order. Views into the text, or into `made` where a
  // step has changed it.
  struct Pieces {
    std::vector<std::string_view> views;
    std::deque<std::string> made;
    RegexScratch scratch;
    // Split gives CANCELLED soon after it becomes true; null: never.
    const std::atomic<bool>* stop = nullptr;
    void Clear();  // the pieces
  };

  // Appends the pieces of text[0, result) to `pieces`. The result is
  // text.size(), unless `open` (only where resumable()): then the text may go
  // on, the pieces are those of every continuation, and the rest of one is
  // cut as a text of its own from any end of a piece.
  absl::StatusOr<std::size_t> Split(std::string_view text, bool open,
                                    Pieces& pieces) const;

  // Whether text may be cut before its end is known.
  bool resumable() const { return resumable_; }

 private:
  struct Step {
    PreTokenizerStep::Kind kind;
    bool removed = false;
    Regex regex;  // kSplitRegex
  };

  absl::StatusOr<std::size_t> SplitFrom(std::size_t step, std::string_view text,
                                        bool open, Pieces& pieces) const;
  absl::StatusOr<std::size_t> SplitDigits(std::size_t step,
                                          std::string_view text, bool open,
                                          Pieces& pieces) const;
  absl::StatusOr<std::size_t> SplitRegex(std::size_t step,
                                         std::string_view text, bool open,
                                         Pieces& pieces) const;

  std::vector<Step> steps_;
  bool resumable_ = true;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_PRE_TOKENIZER_H_
