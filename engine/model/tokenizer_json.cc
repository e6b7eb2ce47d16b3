// TokenizerSpec from tokenizer.json.
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

constexpr std::int64_t kMaxTokens = 1 << 22;

std::string_view Text(JsonValue object, std::string_view key) {
  const auto value = object.FindSet(key);
  return value && value->is_string() ? value->string() : std::string_view();
}

bool Flag(JsonValue object, std::string_view key, bool otherwise) {
  const auto value = object.FindSet(key);
  return value && value->is_bool() ? value->boolean() : otherwise;
}

// A fixed text as a regular expression.
std::string Escaped(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) {
      pattern += '\\';
    }
    pattern += c;
  }
  return pattern;
}

class Reader {
 public:
  Reader(JsonValue json, const std::string& file) : json_(json), file_(file) {}

  kernels::StatusOr<TokenizerSpec> Read() {
    spec_.source = file_;
    const auto model = json_.FindSet("model");
    if (!model || !model->is_object()) return Wrong("model");
    HF_RETURN_IF_ERROR(RefuseVariants(*model));
    HF_RETURN_IF_ERROR(ReadVocabulary(*model));
    HF_RETURN_IF_ERROR(ReadNormalizer(json_.FindSet("normalizer")));
    HF_RETURN_IF_ERROR(ReadPreTokenizer());
    HF_RETURN_IF_ERROR(ReadAddedTokens());
    if (const auto post = json_.FindSet("post_processor")) {
      HF_RETURN_IF_ERROR(ReadPostProcessor(*post));
    }
    return std::move(spec_);
  }

 private:
  Status Wrong(std::string_view key) const {
    return InvalidArgument(Message(file_, ": ", key, " is missing or broken"));
  }
  Status Refused(std::string_view key, std::string_view value) const {
    return Unimplemented(Message(file_, ": ", key, value.empty() ? "" : " '",
                                 value, value.empty() ? "" : "'",
                                 " is not implemented"));
  }

  Status RefuseVariants(JsonValue model) const {
    const std::string_view type = Text(model, "type");
    if (type != "BPE" && model.FindSet("type"))
      return Refused("model.type", type);
    for (const char* key :
         {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!Text(model, key).empty()) {
        return Refused(std::string("model.") + key, Text(model, key));
      }
    }
    if (const auto dropout = model.FindSet("dropout");
        dropout && !(dropout->is_number() && dropout->number() == 0)) {
      return Refused("model.dropout", "");
    }
    if (Flag(model, "byte_fallback", false)) {
      return Refused("model.byte_fallback", "");
    }
    for (const char* key : {"truncation", "padding"}) {
      if (json_.FindSet(key)) return Refused(key, "");
    }
    if (const auto decoder = json_.FindSet("decoder");
        decoder && Text(*decoder, "type") != "ByteLevel") {
      return Refused("decoder", Text(*decoder, "type"));
    }
    return kernels::OkStatus();
  }

  Status ReadVocabulary(JsonValue model) {
    const auto vocabulary = model.FindSet("vocab");
    const auto merges = model.FindSet("merges");
    if (!vocabulary || !vocabulary->is_object()) return Wrong("model.vocab");
    if (!merges || !merges->is_array()) return Wrong("model.merges");
    for (auto [text, id] : vocabulary->members()) {
      HF_RETURN_IF_ERROR(SetToken(id.integer().value_or(-1), text));
    }
    HF_ASSIGN_OR_RETURN(const TokenIds ids, IndexTokens(spec_.tokens, file_));
    std::vector<MergePair> pairs;
    pairs.reserve(merges->size());
    for (JsonValue merge : merges->elements()) {
      HF_ASSIGN_OR_RETURN(const MergePair pair, ReadMerge(merge));
      pairs.push_back(pair);
    }
    HF_ASSIGN_OR_RETURN(spec_.merges, ResolveMerges(pairs, ids, file_));
    spec_.ignore_merges = Flag(model, "ignore_merges", false);
    if (!model.FindSet("unk_token")) return kernels::OkStatus();
    // An unknown token only shows where a byte has no entry.
    for (const std::string& byte : ByteAlphabet()) {
      if (!ids.contains(byte)) {
        return Refused("model.unk_token with bytes left out of model.vocab",
                       "");
      }
    }
    return kernels::OkStatus();
  }

  Status SetToken(std::int64_t id, std::string_view text) {
    if (id < 0 || id >= kMaxTokens || text.empty()) {
      return InvalidArgument(
          Message(file_, ": token '", text, "' has id ", id));
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= spec_.tokens.size()) spec_.tokens.resize(index + 1);
    std::string& token = spec_.tokens[index];
    if (!token.empty() && token != text) {
      return InvalidArgument(Message(file_, ": id ", id, " is both '", token,
                                     "' and '", text, "'"));
    }
    token = std::string(text);
    return kernels::OkStatus();
  }

  kernels::StatusOr<MergePair> ReadMerge(JsonValue merge) const {
    if (merge.is_string()) return SplitMerge(merge.string(), file_);
    if (merge.is_array() && merge.size() == 2) {
      auto part = merge.elements().begin();
      const JsonValue left = *part;
      const JsonValue right = *++part;
      if (left.is_string() && right.is_string()) {
        return MergePair(left.string(), right.string());
      }
    }
    return Wrong("an entry of model.merges");
  }

  Status ReadNormalizer(std::optional<JsonValue> normalizer) {
    if (!normalizer) return kernels::OkStatus();
    const std::string_view type = Text(*normalizer, "type");
    if (type == "NFC") {
      spec_.nfc = true;
      return kernels::OkStatus();
    }
    if (type != "Sequence") return Refused("normalizer", type);
    const auto parts = normalizer->FindSet("normalizers");
    if (!parts || !parts->is_array()) return Wrong("normalizer.normalizers");
    for (JsonValue part : parts->elements()) {
      // One level: the file format could nest, no file does.
      if (Text(part, "type") == "Sequence") {
        return Refused("normalizer", "Sequence in a Sequence");
      }
      HF_RETURN_IF_ERROR(ReadNormalizer(part));
    }
    return kernels::OkStatus();
  }

  Status ReadPreTokenizer() {
    const auto root = json_.FindSet("pre_tokenizer");
    if (!root) return Wrong("pre_tokenizer");
    std::vector<JsonValue> steps;
    if (Text(*root, "type") == "Sequence") {
      const auto parts = root->FindSet("pretokenizers");
      if (!parts || !parts->is_array()) {
        return Wrong("pre_tokenizer.pretokenizers");
      }
      for (JsonValue step : parts->elements()) steps.push_back(step);
    } else {
      steps.push_back(*root);
    }
    if (steps.empty() || Text(steps.back(), "type") != "ByteLevel") {
      return Refused("pre_tokenizer without ByteLevel as its last step", "");
    }
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
      const std::string_view type = Text(steps[i], "type");
      if (type == "Split") {
        HF_RETURN_IF_ERROR(ReadSplit(steps[i]));
      } else if (type == "Digits") {
        spec_.pre_tokenizer.push_back(
            DigitsStep(Flag(steps[i], "individual_digits", false)));
      } else {
        return Refused("pre_tokenizer step", type);
      }
    }
    return ReadByteLevel(steps.back());
  }

  Status ReadByteLevel(JsonValue step) {
    if (Flag(step, "add_prefix_space", true)) {
      // After other steps the reference puts a space before each of their
      // pieces, which TokenizerSpec has no word for.
      if (!spec_.pre_tokenizer.empty()) {
        return Refused("pre_tokenizer: add_prefix_space after other steps", "");
      }
      PreTokenizerStep prefix;
      prefix.kind = PreTokenizerStep::Kind::kAddPrefixSpace;
      spec_.pre_tokenizer.push_back(prefix);
    }
    if (Flag(step, "use_regex", true)) {
      spec_.pre_tokenizer.push_back(SplitStep(kGpt2Pattern));
    }
    return kernels::OkStatus();
  }

  Status ReadSplit(JsonValue step) {
    const auto pattern = step.FindSet("pattern");
    if (!pattern) return Wrong("pre_tokenizer Split.pattern");
    PreTokenizerStep split;
    if (const auto regex = pattern->FindSet("Regex");
        regex && regex->is_string()) {
      split.pattern = std::string(regex->string());
    } else if (const auto text = pattern->FindSet("String");
               text && text->is_string()) {
      split.pattern = Escaped(text->string());
    } else {
      return Wrong("pre_tokenizer Split.pattern");
    }
    const std::string_view behavior = Text(step, "behavior");
    if (behavior != "Isolated" && behavior != "Removed") {
      return Refused("pre_tokenizer Split.behavior", behavior);
    }
    if (Flag(step, "invert", false)) {
      return Refused("pre_tokenizer Split.invert", "");
    }
    split.removed = behavior == "Removed";
    spec_.pre_tokenizer.push_back(std::move(split));
    return kernels::OkStatus();
  }

  Status ReadAddedTokens() {
    const auto added = json_.FindSet("added_tokens");
    if (!added) return kernels::OkStatus();
    for (JsonValue entry : added->elements()) {
      AddedToken token;
      token.content = std::string(Text(entry, "content"));
      const auto id = entry.FindSet("id");
      HF_RETURN_IF_ERROR(
          SetToken(id ? id->integer().value_or(-1) : -1, token.content));
      token.id = static_cast<std::uint32_t>(*id->integer());
      token.special = Flag(entry, "special", false);
      token.lstrip = Flag(entry, "lstrip", false);
      token.rstrip = Flag(entry, "rstrip", false);
      token.normalized = Flag(entry, "normalized", !token.special);
      token.single_word = Flag(entry, "single_word", false);
      spec_.added_tokens.push_back(std::move(token));
    }
    // An added token must not be a second id of a vocabulary entry.
    const auto ids = IndexTokens(spec_.tokens, file_);
    return ids.ok() ? kernels::OkStatus() : ids.status();
  }

  Status ReadPostProcessor(JsonValue processor) {
    const std::string_view type = Text(processor, "type");
    if (type == "ByteLevel") return kernels::OkStatus();  // offsets alone
    if (type == "Sequence") {
      const auto parts = processor.FindSet("processors");
      if (!parts || !parts->is_array()) {
        return Wrong("post_processor.processors");
      }
      for (JsonValue part : parts->elements()) {
        if (Text(part, "type") == "Sequence") {
          return Refused("post_processor", "Sequence in a Sequence");
        }
        HF_RETURN_IF_ERROR(ReadPostProcessor(part));
      }
      return kernels::OkStatus();
    }
    if (type != "TemplateProcessing") return Refused("post_processor", type);
    return ReadTemplate(processor);
  }

  // [text], or [one special token, text]: the token is bos.
  Status ReadTemplate(JsonValue processor) {
    const auto single = processor.FindSet("single");
    if (!single || !single->is_array()) return Wrong("post_processor.single");
    std::vector<JsonValue> parts;
    for (JsonValue part : single->elements()) parts.push_back(part);
    if (parts.empty() || parts.size() > 2 ||
        !parts.back().FindSet("Sequence")) {
      return Refused("post_processor.single of other than [bos,] text", "");
    }
    if (parts.size() == 1) return kernels::OkStatus();
    const auto special = parts.front().FindSet("SpecialToken");
    const auto table = processor.FindSet("special_tokens");
    if (!special || !table) return Wrong("post_processor.special_tokens");
    const auto entry = table->FindSet(Text(*special, "id"));
    const auto ids = entry ? entry->FindSet("ids") : std::nullopt;
    if (!ids || !ids->is_array() || ids->size() != 1) {
      return Wrong("post_processor.special_tokens");
    }
    const auto id = (*ids->elements().begin()).integer().value_or(-1);
    if (id < 0 || static_cast<std::size_t>(id) >= spec_.tokens.size()) {
      return Wrong("post_processor.special_tokens");
    }
    if (spec_.add_bos) return Refused("post_processor with two templates", "");
    spec_.add_bos = true;
    spec_.bos_id = static_cast<std::uint32_t>(id);
    spec_.bos_token = spec_.tokens[static_cast<std::size_t>(id)];
    return kernels::OkStatus();
  }

  JsonValue json_;
  const std::string& file_;
  TokenizerSpec spec_;
};

}  // namespace

kernels::StatusOr<TokenizerSpec> TokenizerFromJson(JsonValue json,
                                                   const std::string& file) {
  return Reader(json, file).Read();
}

}  // namespace holdfast::model
