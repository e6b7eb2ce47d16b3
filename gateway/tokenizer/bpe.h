// Byte-pair merging by rank.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_BPE_H_
#define HOLDFAST_GATEWAY_TOKENIZER_BPE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "gateway/tokenizer/word_cache.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway {

// Immutable but for its cache; any number of threads, each with its Scratch.
class Bpe {
 public:
  // `token_bytes`: the bytes of each id, empty for ids that BPE must not give
  // as a whole word (added tokens).
  static absl::StatusOr<Bpe> Create(
      const TokenizerSpec& spec, const std::vector<std::string>& token_bytes);

  // One symbol of the word being merged.
  struct Symbol {
    std::uint32_t id = 0;
    std::int32_t previous = -1;
    std::int32_t next = -1;
    bool alive = true;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::int32_t left = 0;  // index of the pair's left symbol
    std::uint32_t merged = 0;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of one piece. Time is n log n in its bytes. False, and
  // `ids` unspecified, soon after `stop` becomes true (null: never).
  bool Encode(std::string_view piece, const std::atomic<bool>* stop,
              Scratch& scratch, std::vector<std::uint32_t>* ids) const;

  // The piece has no fewer ids than this.
  std::size_t LeastIds(std::string_view piece) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::uint32_t merged = 0;
  };

  const Merge* FindMerge(const Scratch& scratch, std::int32_t left) const;
  void PushCandidate(std::int32_t left, Scratch& scratch) const;
  bool MergeWord(std::string_view piece, const std::atomic<bool>* stop,
                 Scratch& scratch, std::vector<std::uint32_t>* ids) const;
  void FindLongest(const TokenizerSpec& spec);

  std::array<std::uint32_t, 256> byte_ids_{};
  absl::flat_hash_map<std::uint64_t, Merge> merges_;  // left << 32 | right
  // No id stands for more bytes of a piece.
  std::size_t longest_ = 1;
  // Only with ignore_merges: words that are tokens as they stand.
  absl::flat_hash_map<std::string, std::uint32_t> words_;
  std::unique_ptr<WordCache> cache_ = std::make_unique<WordCache>();
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_BPE_H_
