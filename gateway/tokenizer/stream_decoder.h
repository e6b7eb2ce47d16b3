// Text of a token stream as it arrives, never half a character.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_STREAM_DECODER_H_
#define HOLDFAST_GATEWAY_TOKENIZER_STREAM_DECODER_H_

#include <cstdint>
#include <string>

#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {

// All texts returned, one after the other, are valid UTF-8 and equal
// Tokenizer::DecodeText of all ids. One thread at a time; the tokenizer must
// outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that this token makes certain: bytes that may still become a
  // character are kept back (at most 3), bytes that no longer can are U+FFFD.
  std::string Append(std::uint32_t id);
  // What is kept back, as U+FFFD; empty when nothing is. The decoder is then
  // as new.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_STREAM_DECODER_H_
