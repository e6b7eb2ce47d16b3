// A byte-level BPE tokenizer as read from a model's files: the same content as
// proto/holdfast/v1/tokenizer.proto, in standard-library types. The field
// comments there hold here too.
#ifndef HOLDFAST_SHARED_TOKENIZER_SPEC_H_
#define HOLDFAST_SHARED_TOKENIZER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast {

struct PreTokenizerStep {
  enum class Kind {
    kSplitRegex,
    kDigitsIndividual,
    kDigitsRuns,
    kAddPrefixSpace
  };
  Kind kind = Kind::kSplitRegex;
  std::string pattern;
  bool removed = false;
};

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool single_word = false;
};

struct TokenizerSpec {
  std::vector<std::string> tokens;
  std::vector<std::uint32_t> merges;  // left, right, merged; by rank
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool nfc = false;
  std::vector<AddedToken> added_tokens;
  bool ignore_merges = false;
  std::optional<std::uint32_t> bos_id;
  std::vector<std::uint32_t> eos_ids;
  bool add_bos = false;
  std::string chat_template;
  std::string bos_token;
  std::string eos_token;
  std::optional<std::uint32_t> pad_id;
  std::string pad_token;
  std::string unk_token;
  std::string source;
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_TOKENIZER_SPEC_H_
