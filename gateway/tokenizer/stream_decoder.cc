#include "gateway/tokenizer/stream_decoder.h"

#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {

std::string StreamDecoder::Append(std::uint32_t id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return {};
  pending_.append(tokenizer_.TokenBytes(id));
  std::string text;
  const std::size_t kept = AppendValid(pending_, /*final=*/false, &text);
  pending_.erase(0, pending_.size() - kept);
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text;
  AppendValid(pending_, /*final=*/true, &text);
  pending_.clear();
  return text;
}

}  // namespace holdfast::gateway
