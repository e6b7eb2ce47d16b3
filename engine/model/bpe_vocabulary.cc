#include "engine/model/bpe_vocabulary.h"

#include <algorithm>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

std::vector<std::string> MakeByteAlphabet() {
  std::vector<std::string> alphabet;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int code = printable ? byte : next++;
    std::string text;
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {  // below U+0800
      text += static_cast<char>(0xc0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
    alphabet.push_back(std::move(text));
  }
  return alphabet;
}

}  // namespace

const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char kQwen35Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

PreTokenizerStep SplitStep(std::string pattern) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kSplitRegex;
  step.pattern = std::move(pattern);
  return step;
}

PreTokenizerStep DigitsStep(bool individual) {
  PreTokenizerStep step;
  step.kind = individual ? PreTokenizerStep::Kind::kDigitsIndividual
                         : PreTokenizerStep::Kind::kDigitsRuns;
  return step;
}

const std::vector<std::string>& ByteAlphabet() {
  static const auto& alphabet =
      *new std::vector<std::string>(MakeByteAlphabet());
  return alphabet;
}

kernels::StatusOr<TokenIds> IndexTokens(std::span<const std::string> tokens,
                                        const std::string& file) {
  TokenIds ids;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    const auto [at, added] =
        ids.try_emplace(tokens[id], static_cast<std::uint32_t>(id));
    if (!added) {
      return kernels::InvalidArgument(Message(file, ": token '", tokens[id],
                                              "' has the ids ", at->second,
                                              " and ", id));
    }
  }
  return ids;
}

kernels::StatusOr<std::vector<std::uint32_t>> ResolveMerges(
    std::span<const MergePair> merges, const TokenIds& ids,
    const std::string& file) {
  std::vector<std::uint32_t> resolved;
  resolved.reserve(3 * merges.size());
  std::string whole;
  for (const auto& [left, right] : merges) {
    whole.assign(left).append(right);
    for (std::string_view part : {left, right, std::string_view(whole)}) {
      const auto found = ids.find(part);
      if (found == ids.end()) {
        return kernels::InvalidArgument(Message(file, ": merge '", left, " ",
                                                right, "': '", part,
                                                "' is not in the vocabulary"));
      }
      resolved.push_back(found->second);
    }
  }
  return resolved;
}

kernels::StatusOr<MergePair> SplitMerge(std::string_view text,
                                        const std::string& file) {
  const std::size_t space = text.find(' ');
  if (space == 0 || space == std::string_view::npos ||
      space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos) {
    return kernels::InvalidArgument(
        Message(file, ": merge '", text, "' is not two words"));
  }
  return MergePair(text.substr(0, space), text.substr(space + 1));
}

void AddEos(std::uint32_t id, TokenizerSpec* spec) {
  if (std::find(spec->eos_ids.begin(), spec->eos_ids.end(), id) ==
      spec->eos_ids.end()) {
    spec->eos_ids.push_back(id);
  }
}

}  // namespace holdfast::model
