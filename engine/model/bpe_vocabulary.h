// What the tokenizer readers share: patterns, merges, byte-level alphabet.
#ifndef HOLDFAST_ENGINE_MODEL_BPE_VOCABULARY_H_
#define HOLDFAST_ENGINE_MODEL_BPE_VOCABULARY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/status.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::model {

// Splits at contractions, letters, numbers, the rest, and runs of space.
extern const char kGpt2Pattern[];
extern const char kLlama3Pattern[];  // numbers by threes
extern const char kQwen2Pattern[];   // numbers by one
extern const char kQwen35Pattern[];  // and combining marks with the letters

PreTokenizerStep SplitStep(std::string pattern);
PreTokenizerStep DigitsStep(bool individual);

// The 256 characters (UTF-8) that stand for the bytes 0 to 255 in byte-level
// vocabularies: printable bytes stand for themselves, the others for U+0100 on.
const std::vector<std::string>& ByteAlphabet();

// Ids by text; views point into the tokens it was made from. Ids without text
// are left out. An error names a text that two ids have.
using TokenIds = std::unordered_map<std::string_view, std::uint32_t>;
kernels::StatusOr<TokenIds> IndexTokens(std::span<const std::string> tokens,
                                        const std::string& file);

using MergePair = std::pair<std::string_view, std::string_view>;
// TokenizerSpec::merges; an error names a merge whose parts or result are no
// tokens.
kernels::StatusOr<std::vector<std::uint32_t>> ResolveMerges(
    std::span<const MergePair> merges, const TokenIds& ids,
    const std::string& file);
// "left right"; an error names a text that is not two words.
kernels::StatusOr<MergePair> SplitMerge(std::string_view text,
                                        const std::string& file);

// Adds an id once.
void AddEos(std::uint32_t id, TokenizerSpec* spec);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_BPE_VOCABULARY_H_
