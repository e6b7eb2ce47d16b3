#include "gateway/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "gateway/tokenizer/byte_alphabet.h"
#include "gateway/tokenizer/encoder.h"
#include "gateway/tokenizer/nfc.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {

struct Tokenizer::Impl {
  TokenizerSpec spec;
  std::vector<std::string> bytes;  // by id
  std::vector<bool> added;         // by id
  std::vector<bool> special;       // by id
  std::vector<std::string> added_texts;
  std::unordered_map<std::string, std::uint32_t> added_ids;
  EncoderTables tables;
};

namespace {

// An id far past the vocabulary would only come from a broken file, and would
// make the tables as large.
constexpr std::uint32_t kMostAddedIdGap = 1 << 20;

absl::Status CheckAdded(const TokenizerSpec& spec, const AddedToken& token) {
  if (token.id >= spec.tokens.size() + kMostAddedIdGap) {
    return absl::InvalidArgumentError(fmt::format(
        "tokenizer of {}: added token \"{}\" has id {}, far past the "
        "vocabulary of {}",
        spec.source, token.content, token.id, spec.tokens.size()));
  }
  if (token.content.empty() ||
      ValidUtf8Bytes(token.content) != token.content.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "tokenizer of {}: the text of added token {} is {}", spec.source,
        token.id, token.content.empty() ? "empty" : "not UTF-8"));
  }
  return absl::OkStatus();
}

void AddToTables(const AddedToken& token, EncoderTables* tables) {
  if (!token.normalized) {
    tables->added.Add(token, token.content);
    return;
  }
  std::string normalized;
  if (tables->nfc) {
    AppendNfc(token.content, &normalized);
  } else {
    normalized = token.content;
  }
  tables->normalized_as_written.Add(token, token.content);
  tables->normalized.Add(token, normalized);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(
    TokenizerSpec spec) {
  auto impl = std::make_unique<Impl>();
  impl->tables.nfc = spec.nfc;
  std::size_t size = spec.tokens.size();
  for (const AddedToken& token : spec.added_tokens) {
    if (absl::Status s = CheckAdded(spec, token); !s.ok()) return s;
    size = std::max<std::size_t>(size, token.id + std::size_t{1});
  }
  impl->bytes.resize(size);
  impl->added.resize(size);
  impl->special.resize(size);
  for (const AddedToken& token : spec.added_tokens) {
    impl->added[token.id] = true;
    impl->special[token.id] = token.special;
    impl->added_texts.push_back(token.content);
    impl->added_ids.emplace(token.content, token.id);
    AddToTables(token, &impl->tables);
  }
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!impl->added[id]) impl->bytes[id] = BytesOfToken(spec.tokens[id]);
  }
  absl::StatusOr<PreTokenizer> pre_tokenizer =
      PreTokenizer::Create(spec.pre_tokenizer);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  impl->tables.pre_tokenizer = *std::move(pre_tokenizer);
  absl::StatusOr<Bpe> bpe = Bpe::Create(spec, impl->bytes);
  if (!bpe.ok()) return bpe.status();
  impl->tables.bpe = *std::move(bpe);
  // After Bpe::Create, which must not give an added token for a whole word.
  for (const AddedToken& token : spec.added_tokens) {
    impl->bytes[token.id] = token.content;
  }
  impl->spec = std::move(spec);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

absl::StatusOr<std::vector<std::uint32_t>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options,
    const EncodeLimits& limits) const {
  std::vector<std::uint32_t> ids;
  const absl::Status status =
      EncodeFrom(text, 0, options, &ids, nullptr, limits);
  if (!status.ok()) return status;
  return ids;
}

absl::Status Tokenizer::EncodeFrom(std::string_view text, std::size_t begin,
                                   const EncodeOptions& options,
                                   std::vector<std::uint32_t>* ids,
                                   std::vector<Checkpoint>* checkpoints,
                                   const EncodeLimits& limits) const {
  const std::size_t valid = begin + ValidUtf8Bytes(text.substr(begin));
  if (valid != text.size()) {
    return absl::InvalidArgumentError(
        fmt::format("text is not valid UTF-8 at byte {}", valid));
  }
  if (begin == 0 && options.add_bos) {
    if (!impl_->spec.bos_id) {
      return absl::FailedPreconditionError(
          fmt::format("tokenizer of {} has no bos token", impl_->spec.source));
    }
    ids->push_back(*impl_->spec.bos_id);
  }
  return Encoder(impl_->tables, text, options, limits, ids, checkpoints)
      .Run(begin);
}

std::string Tokenizer::Decode(std::span<const std::uint32_t> ids,
                              bool skip_special) const {
  std::string bytes;
  for (const std::uint32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    bytes += TokenBytes(id);
  }
  return bytes;
}

std::string Tokenizer::DecodeText(std::span<const std::uint32_t> ids,
                                  bool skip_special) const {
  std::string text;
  AppendValid(Decode(ids, skip_special), /*final=*/true, &text);
  return text;
}

std::string_view Tokenizer::TokenBytes(std::uint32_t id) const {
  if (id >= impl_->bytes.size()) return {};
  return impl_->bytes[id];
}

bool Tokenizer::IsSpecial(std::uint32_t id) const {
  return id < impl_->special.size() && impl_->special[id];
}

bool Tokenizer::IsAdded(std::uint32_t id) const {
  return id < impl_->added.size() && impl_->added[id];
}

bool Tokenizer::IsEos(std::uint32_t id) const {
  const std::vector<std::uint32_t>& eos = impl_->spec.eos_ids;
  return std::find(eos.begin(), eos.end(), id) != eos.end();
}

std::size_t Tokenizer::vocab_size() const { return impl_->bytes.size(); }

std::optional<std::uint32_t> Tokenizer::FindAdded(
    std::string_view content) const {
  const auto found = impl_->added_ids.find(std::string(content));
  if (found == impl_->added_ids.end()) return std::nullopt;
  return found->second;
}

const std::vector<std::string>& Tokenizer::added_texts() const {
  return impl_->added_texts;
}

const TokenizerSpec& Tokenizer::spec() const { return impl_->spec; }

}  // namespace holdfast::gateway
