// From the engine's tokens to what a client sees of them.
#ifndef HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_
#define HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/openai/request.h"
#include "gateway/openai/response.h"
#include "gateway/openai/stop_filter.h"
#include "gateway/tokenizer/stream_decoder.h"
#include "gateway/tokenizer/tokenizer.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::gateway {

// Whole characters, nothing from a stop string on, no end-of-turn token. The
// tokenizer must outlive it. Not thread-safe.
class AnswerText {
 public:
  // What can be sent now. Log-probabilities (when asked for) come with the text
  // that their token completes.
  struct Piece {
    std::string text;
    std::vector<openai::TokenLogprobs> logprobs;
  };

  AnswerText(const Tokenizer& tokenizer, const openai::CommonRequest& request);

  Piece Add(const v1::Tokens& tokens);
  // After the last token: what was kept back.
  Piece Finish();

  // Everything the engine sampled, end-of-turn token included.
  const std::vector<std::uint32_t>& ids() const { return ids_; }

 private:
  openai::TokenLogprobs Logprobs(const v1::OutputToken& token) const;

  const Tokenizer& tokenizer_;
  const bool ignore_eos_;
  const bool want_logprobs_;
  StreamDecoder decoder_;
  openai::StopFilter filter_;
  std::vector<std::uint32_t> ids_;
  std::vector<openai::TokenLogprobs> waiting_;  // for their text
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_
