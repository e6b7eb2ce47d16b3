#include "shared/tokenizer_proto.h"

#include "fmt/format.h"

namespace holdfast {
namespace {

using Kind = PreTokenizerStep::Kind;

v1::PreTokenizerStep::Kind ToProto(Kind kind) {
  switch (kind) {
    case Kind::kSplitRegex:
      return v1::PreTokenizerStep::SPLIT_REGEX;
    case Kind::kDigitsIndividual:
      return v1::PreTokenizerStep::DIGITS_INDIVIDUAL;
    case Kind::kDigitsRuns:
      return v1::PreTokenizerStep::DIGITS_RUNS;
    case Kind::kAddPrefixSpace:
      return v1::PreTokenizerStep::ADD_PREFIX_SPACE;
  }
  return v1::PreTokenizerStep::KIND_UNSPECIFIED;
}

absl::StatusOr<Kind> FromProto(v1::PreTokenizerStep::Kind kind) {
  switch (kind) {
    case v1::PreTokenizerStep::SPLIT_REGEX:
      return Kind::kSplitRegex;
    case v1::PreTokenizerStep::DIGITS_INDIVIDUAL:
      return Kind::kDigitsIndividual;
    case v1::PreTokenizerStep::DIGITS_RUNS:
      return Kind::kDigitsRuns;
    case v1::PreTokenizerStep::ADD_PREFIX_SPACE:
      return Kind::kAddPrefixSpace;
    default:
      return absl::InvalidArgumentError(fmt::format(
          "tokenizer: unknown pre-tokenizer step {}", static_cast<int>(kind)));
  }
}

absl::Status CheckIds(const TokenizerSpec& spec) {
  const std::size_t size = spec.tokens.size();
  for (std::uint32_t id : spec.merges) {
    if (id >= size) {
      return absl::InvalidArgumentError(fmt::format(
          "tokenizer: merge names id {}, the vocabulary has {}", id, size));
    }
  }
  for (const AddedToken& token : spec.added_tokens) {
    if (token.id >= size) {
      return absl::InvalidArgumentError(fmt::format(
          "tokenizer: added token {} has id {}, the vocabulary has {}",
          token.content, token.id, size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

v1::Tokenizer ToProto(const TokenizerSpec& spec) {
  v1::Tokenizer proto;
  for (const std::string& token : spec.tokens) proto.add_tokens(token);
  proto.mutable_merges()->Add(spec.merges.begin(), spec.merges.end());
  for (const PreTokenizerStep& step : spec.pre_tokenizer) {
    v1::PreTokenizerStep* out = proto.add_pre_tokenizer();
    out->set_kind(ToProto(step.kind));
    out->set_pattern(step.pattern);
    out->set_removed(step.removed);
  }
  proto.set_normalizer(spec.nfc ? v1::Tokenizer::NORMALIZER_NFC
                                : v1::Tokenizer::NORMALIZER_NONE);
  for (const AddedToken& token : spec.added_tokens) {
    v1::AddedToken* out = proto.add_added_tokens();
    out->set_id(token.id);
    out->set_content(token.content);
    out->set_special(token.special);
    out->set_lstrip(token.lstrip);
    out->set_rstrip(token.rstrip);
    out->set_normalized(token.normalized);
    out->set_single_word(token.single_word);
  }
  proto.set_ignore_merges(spec.ignore_merges);
  if (spec.bos_id) proto.set_bos_id(*spec.bos_id);
  proto.mutable_eos_ids()->Add(spec.eos_ids.begin(), spec.eos_ids.end());
  proto.set_add_bos(spec.add_bos);
  proto.set_chat_template(spec.chat_template);
  proto.set_bos_token(spec.bos_token);
  proto.set_eos_token(spec.eos_token);
  if (spec.pad_id) proto.set_pad_id(*spec.pad_id);
  proto.set_pad_token(spec.pad_token);
  proto.set_unk_token(spec.unk_token);
  proto.set_source(spec.source);
  return proto;
}

absl::StatusOr<TokenizerSpec> FromProto(const v1::Tokenizer& proto) {
  TokenizerSpec spec;
  spec.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  if (proto.merges_size() % 3 != 0) {
    return absl::InvalidArgumentError("tokenizer: merges are not triples");
  }
  spec.merges.assign(proto.merges().begin(), proto.merges().end());
  for (const v1::PreTokenizerStep& step : proto.pre_tokenizer()) {
    absl::StatusOr<Kind> kind = FromProto(step.kind());
    if (!kind.ok()) return kind.status();
    spec.pre_tokenizer.push_back(
        {.kind = *kind, .pattern = step.pattern(), .removed = step.removed()});
  }
  spec.nfc = proto.normalizer() == v1::Tokenizer::NORMALIZER_NFC;
  for (const v1::AddedToken& token : proto.added_tokens()) {
    spec.added_tokens.push_back({.id = token.id(),
                                 .content = token.content(),
                                 .special = token.special(),
                                 .lstrip = token.lstrip(),
                                 .rstrip = token.rstrip(),
                                 .normalized = token.normalized(),
                                 .single_word = token.single_word()});
  }
  spec.ignore_merges = proto.ignore_merges();
  if (proto.has_bos_id()) spec.bos_id = proto.bos_id();
  spec.eos_ids.assign(proto.eos_ids().begin(), proto.eos_ids().end());
  spec.add_bos = proto.add_bos();
  spec.chat_template = proto.chat_template();
  spec.bos_token = proto.bos_token();
  spec.eos_token = proto.eos_token();
  if (proto.has_pad_id()) spec.pad_id = proto.pad_id();
  spec.pad_token = proto.pad_token();
  spec.unk_token = proto.unk_token();
  spec.source = proto.source();
  if (absl::Status status = CheckIds(spec); !status.ok()) return status;
  return spec;
}

}  // namespace holdfast
