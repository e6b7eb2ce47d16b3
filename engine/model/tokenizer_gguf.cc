// TokenizerSpec from GGUF metadata.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/bpe_vocabulary.h"
#include "engine/model/message.h"
#include "engine/model/tokenizer_files.h"

namespace holdfast::model {
namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::Unimplemented;

// Of tokenizer.ggml.token_type.
enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUser = 4,
  kUnused = 5
};

struct NamedPreTokenizer {
  const char* name;
  bool digits_alone;  // every digit a piece, before the pattern
  const char* pattern;
  // What the tokenizers of this name have beside the pattern, which the
  // metadata does not say.
  bool nfc;
  bool ignore_merges;
  bool add_bos;  // unless tokenizer.ggml.add_bos_token says otherwise
};

// "default" is not here: it says that the file's converter did not know the
// model's pattern, and any guess would give other ids than the model's.
constexpr NamedPreTokenizer kPreTokenizers[] = {
    {"gpt-2", false, kGpt2Pattern, false, false, false},
    {"smollm", true, kGpt2Pattern, false, false, false},
    {"llama-bpe", false, kLlama3Pattern, false, true, true},
    {"llama-v3", false, kLlama3Pattern, false, true, true},
    {"llama3", false, kLlama3Pattern, false, true, true},
    {"qwen2", false, kQwen2Pattern, true, false, false},
    {"qwen35", false, kQwen35Pattern, true, false, false},
};

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  kernels::StatusOr<TokenizerSpec> Read() {
    spec_.source = file_.path();
    HF_RETURN_IF_ERROR(RefuseUnknown());
    HF_RETURN_IF_ERROR(ReadPreTokenizer());
    HF_RETURN_IF_ERROR(ReadTokens());
    HF_RETURN_IF_ERROR(ReadMerges());
    HF_RETURN_IF_ERROR(ReadSpecials());
    HF_ASSIGN_OR_RETURN(const auto chat_template,
                        file_.String("tokenizer.chat_template"));
    spec_.chat_template = std::string(chat_template.value_or(""));
    return std::move(spec_);
  }

 private:
  Status RefuseUnknown() const {
    HF_ASSIGN_OR_RETURN(const auto model, file_.String("tokenizer.ggml.model"));
    if (model.value_or("") != "gpt2") {
      return Unimplemented(Message(file_.path(), ": tokenizer.ggml.model '",
                                   model.value_or("(missing)"),
                                   "' is not implemented (gpt2)"));
    }
    for (const char* key :
         {"tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token",
          "tokenizer.ggml.add_space_prefix",
          "tokenizer.ggml.remove_extra_whitespaces"}) {
      HF_ASSIGN_OR_RETURN(const auto value, file_.Bool(key));
      if (value.value_or(false)) {
        return Unimplemented(
            Message(file_.path(), ": ", key, " is not implemented"));
      }
    }
    return kernels::OkStatus();
  }

  Status ReadPreTokenizer() {
    HF_ASSIGN_OR_RETURN(const auto name, file_.String("tokenizer.ggml.pre"));
    const auto* known =
        std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                     [&](const NamedPreTokenizer& p) {
                       return p.name == name.value_or("");
                     });
    if (known == std::end(kPreTokenizers)) {
      return Unimplemented(
          Message(file_.path(), ": unknown pre-tokenizer tokenizer.ggml.pre '",
                  name.value_or("(missing)"),
                  "'; known: gpt-2, smollm, llama-bpe, qwen2, qwen35"));
    }
    if (known->digits_alone) {
      spec_.pre_tokenizer.push_back(DigitsStep(/*individual=*/true));
    }
    spec_.pre_tokenizer.push_back(SplitStep(known->pattern));
    spec_.nfc = known->nfc;
    spec_.ignore_merges = known->ignore_merges;
    HF_ASSIGN_OR_RETURN(const auto add_bos,
                        file_.Bool("tokenizer.ggml.add_bos_token"));
    spec_.add_bos = add_bos.value_or(known->add_bos);
    return kernels::OkStatus();
  }

  Status ReadTokens() {
    HF_ASSIGN_OR_RETURN(const auto* tokens,
                        file_.Strings("tokenizer.ggml.tokens"));
    if (tokens == nullptr || tokens->empty()) {
      return InvalidArgument(
          Message(file_.path(), ": tokenizer.ggml.tokens is missing or empty"));
    }
    HF_ASSIGN_OR_RETURN(const auto types,
                        file_.Integers("tokenizer.ggml.token_type"));
    if (types && types->size() != tokens->size()) {
      return InvalidArgument(
          Message(file_.path(), ": tokenizer.ggml.token_type has ",
                  types->size(), " entries for ", tokens->size(), " tokens"));
    }
    spec_.tokens.assign(tokens->begin(), tokens->end());
    for (std::size_t id = 0; types && id < types->size(); ++id) {
      HF_RETURN_IF_ERROR(SetType((*types)[id], static_cast<std::uint32_t>(id)));
    }
    return kernels::OkStatus();
  }

  Status SetType(std::int64_t type, std::uint32_t id) {
    switch (type) {
      case kNormal:
        return kernels::OkStatus();
      case kUnused:  // padding of the embedding table
        spec_.tokens[id].clear();
        return kernels::OkStatus();
      case kUnknown:
      case kControl:
      case kUser: {
        if (spec_.tokens[id].empty()) {
          return InvalidArgument(
              Message(file_.path(), ": added token ", id, " has no text"));
        }
        AddedToken token;
        token.id = id;
        token.content = spec_.tokens[id];
        token.special = type != kUser;
        spec_.added_tokens.push_back(std::move(token));
        return kernels::OkStatus();
      }
      default:
        return Unimplemented(Message(file_.path(),
                                     ": tokenizer.ggml.token_type of token ",
                                     id, " is ", type));
    }
  }

  Status ReadMerges() {
    HF_ASSIGN_OR_RETURN(const auto* merges,
                        file_.Strings("tokenizer.ggml.merges"));
    if (merges == nullptr) {
      return InvalidArgument(
          Message(file_.path(), ": tokenizer.ggml.merges is missing"));
    }
    HF_ASSIGN_OR_RETURN(const TokenIds ids,
                        IndexTokens(spec_.tokens, file_.path()));
    std::vector<MergePair> pairs;
    pairs.reserve(merges->size());
    for (std::string_view text : *merges) {
      HF_ASSIGN_OR_RETURN(const MergePair pair, SplitMerge(text, file_.path()));
      pairs.push_back(pair);
    }
    HF_ASSIGN_OR_RETURN(spec_.merges, ResolveMerges(pairs, ids, file_.path()));
    return kernels::OkStatus();
  }

  // The id that a key names, if the file has the key.
  kernels::StatusOr<std::optional<std::uint32_t>> TokenId(
      const std::string& key) const {
    HF_ASSIGN_OR_RETURN(const auto id, file_.Integer("tokenizer.ggml." + key));
    if (!id) return std::optional<std::uint32_t>();
    if (*id < 0 || static_cast<std::size_t>(*id) >= spec_.tokens.size()) {
      return InvalidArgument(Message(file_.path(), ": tokenizer.ggml.", key,
                                     " is ", *id, ", the vocabulary has ",
                                     spec_.tokens.size()));
    }
    return std::optional<std::uint32_t>(static_cast<std::uint32_t>(*id));
  }

  Status ReadSpecials() {
    HF_ASSIGN_OR_RETURN(spec_.bos_id, TokenId("bos_token_id"));
    HF_ASSIGN_OR_RETURN(spec_.pad_id, TokenId("padding_token_id"));
    HF_ASSIGN_OR_RETURN(const auto unknown, TokenId("unknown_token_id"));
    if (spec_.bos_id) spec_.bos_token = spec_.tokens[*spec_.bos_id];
    if (spec_.pad_id) spec_.pad_token = spec_.tokens[*spec_.pad_id];
    if (unknown) spec_.unk_token = spec_.tokens[*unknown];
    if (spec_.add_bos && !spec_.bos_id) {
      return InvalidArgument(Message(
          file_.path(), ": add_bos_token without tokenizer.ggml.bos_token_id"));
    }
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      HF_ASSIGN_OR_RETURN(const auto id, TokenId(key));
      if (!id) continue;
      if (spec_.eos_token.empty()) spec_.eos_token = spec_.tokens[*id];
      AddEos(*id, &spec_);
    }
    return kernels::OkStatus();
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
};

}  // namespace

kernels::StatusOr<TokenizerSpec> TokenizerFromGguf(const GgufFile& file) {
  return Reader(file).Read();
}

}  // namespace holdfast::model
