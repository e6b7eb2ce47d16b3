// An answer on its way to the client: all at once, or as server-sent events.
#ifndef HOLDFAST_GATEWAY_SERVICE_ANSWER_WRITER_H_
#define HOLDFAST_GATEWAY_SERVICE_ANSWER_WRITER_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "gateway/engine/signal.h"
#include "gateway/http/exchange.h"
#include "gateway/openai/error.h"
#include "gateway/openai/response.h"
#include "gateway/service/answer_text.h"
#include "gateway/service/generation.h"
#include "gateway/service/request_record.h"

namespace holdfast::gateway {

// On the io thread. Exchange and record must outlive it. Once a call has
// failed, the client has gone and nothing more can be sent.
class AnswerWriter {
 public:
  AnswerWriter(http::Exchange& exchange, RequestRecord& record,
               Endpoint endpoint, openai::AnswerHead head, bool stream,
               bool include_usage, std::chrono::milliseconds keep_alive);

  // Sends head and role chunk of a stream; does nothing a second time, nor when
  // the answer is not streamed.
  boost::asio::awaitable<absl::Status> Begin();
  // The head was sent: what fails from now on is an event in the stream.
  bool begun() const { return begun_; }
  // Until when a stream may stay silent.
  SteadyTime SilentUntil() const;
  // Sends a comment line when the stream has been silent for that long.
  boost::asio::awaitable<absl::Status> KeepAlive();
  boost::asio::awaitable<absl::Status> Add(AnswerText::Part part);
  boost::asio::awaitable<absl::Status> Finish(openai::FinishReason reason,
                                              openai::Usage usage,
                                              openai::HoldfastReport report,
                                              bool with_logprobs);
  // An error response, or in a begun stream an error event and no [DONE].
  boost::asio::awaitable<void> Fail(openai::ApiError error);

 private:
  boost::asio::awaitable<absl::Status> Event(std::string text);
  // The chunk of a piece; log-probabilities may be null.
  openai::Json Chunk(const answer::Piece& piece,
                     const std::vector<openai::TokenLogprobs>* logprobs);
  void Keep(AnswerText::Part part);

  http::Exchange& exchange_;
  RequestRecord& record_;
  const Endpoint endpoint_;
  const openai::AnswerHead head_;
  const bool stream_;
  const bool include_usage_;
  const std::chrono::milliseconds keep_alive_;
  std::variant<openai::ChatChunks, openai::CompletionChunks> chunks_;
  bool begun_ = false;
  SteadyTime last_sent_;
  openai::Answer whole_;   // when not streamed
  std::size_t calls_ = 0;  // begun in the stream
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ANSWER_WRITER_H_
