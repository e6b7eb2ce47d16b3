#include "gateway/service/answer_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gateway/openai/json.h"
#include "gateway/service/replies.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using Chunks = std::variant<openai::ChatChunks, openai::CompletionChunks>;
using std::chrono::steady_clock;

constexpr std::string_view kKeepAlive = ": keep-alive\n\n";

Chunks MakeChunks(Endpoint endpoint, const openai::AnswerHead& head,
                  bool include_usage) {
  if (endpoint == Endpoint::kChat)
    return openai::ChatChunks(head, include_usage);
  return openai::CompletionChunks(head, include_usage);
}

}  // namespace

AnswerWriter::AnswerWriter(http::Exchange& exchange, RequestRecord& record,
                           Endpoint endpoint, openai::AnswerHead head,
                           bool stream, bool include_usage,
                           std::chrono::milliseconds keep_alive)
    : exchange_(exchange),
      record_(record),
      endpoint_(endpoint),
      head_(std::move(head)),
      stream_(stream),
      include_usage_(include_usage),
      keep_alive_(keep_alive),
      chunks_(MakeChunks(endpoint, head_, include_usage)),
      last_sent_(steady_clock::now()) {}

asio::awaitable<absl::Status> AnswerWriter::Event(std::string text) {
  const absl::Status status = co_await exchange_.Write(text);
  last_sent_ = steady_clock::now();
  co_return status;
}

asio::awaitable<absl::Status> AnswerWriter::Begin() {
  if (!stream_ || begun_) co_return absl::OkStatus();
  begun_ = true;
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"cache-control", "no-cache"},
                  // Proxies that buffer would hold every event back.
                  {"x-accel-buffering", "no"},
                  {"x-request-id", record_.id}};
  record_.status = head.status;
  absl::Status status = co_await exchange_.BeginStream(std::move(head));
  last_sent_ = steady_clock::now();
  const auto* chat = std::get_if<openai::ChatChunks>(&chunks_);
  if (!status.ok() || chat == nullptr) co_return status;
  co_return co_await Event(openai::SseData(chat->Role()));
}

SteadyTime AnswerWriter::SilentUntil() const {
  // What is not streamed cannot be kept alive: the head has the length.
  return begun_ ? last_sent_ + keep_alive_ : SteadyTime::max();
}

asio::awaitable<absl::Status> AnswerWriter::KeepAlive() {
  if (!begun_ || steady_clock::now() < SilentUntil())
    co_return absl::OkStatus();
  co_return co_await Event(std::string(kKeepAlive));
}

openai::Json AnswerWriter::Chunk(
    const answer::Piece& piece,
    const std::vector<openai::TokenLogprobs>* logprobs) {
  auto* const chat = std::get_if<openai::ChatChunks>(&chunks_);
  if (chat == nullptr) {
    return std::get<openai::CompletionChunks>(chunks_).Text(piece.text,
                                                            logprobs);
  }
  switch (piece.kind) {
    case answer::PieceKind::kReasoning:
      return chat->Reasoning(piece.text, logprobs);
    case answer::PieceKind::kCall:
      return chat->ToolCallStart(calls_++, piece.text, logprobs);
    case answer::PieceKind::kArguments:
      return chat->ToolCallArguments(calls_ - 1, piece.text, logprobs);
    default:
      return chat->Content(piece.text, logprobs);
  }
}

void AnswerWriter::Keep(AnswerText::Part part) {
  for (answer::Piece& piece : part.pieces) {
    switch (piece.kind) {
      case answer::PieceKind::kReasoning:
        whole_.reasoning += piece.text;
        break;
      case answer::PieceKind::kCall:
        whole_.tool_calls.push_back({std::move(piece.text), ""});
        break;
      case answer::PieceKind::kArguments:
        whole_.tool_calls.back().arguments += piece.text;
        break;
      default:
        whole_.text += piece.text;
    }
  }
  if (!whole_.logprobs) whole_.logprobs.emplace();
  std::move(part.logprobs.begin(), part.logprobs.end(),
            std::back_inserter(*whole_.logprobs));
}

asio::awaitable<absl::Status> AnswerWriter::Add(AnswerText::Part part) {
  if (!stream_) {
    Keep(std::move(part));
    co_return absl::OkStatus();
  }
  if (part.pieces.empty() && part.logprobs.empty()) co_return absl::OkStatus();
  if (part.pieces.empty()) part.pieces.emplace_back();  // for them alone
  const auto* logprobs = part.logprobs.empty() ? nullptr : &part.logprobs;
  std::string events;
  for (const answer::Piece& piece : part.pieces) {
    events += openai::SseData(Chunk(piece, logprobs));
    logprobs = nullptr;
  }
  co_return co_await Event(std::move(events));
}

asio::awaitable<absl::Status> AnswerWriter::Finish(
    openai::FinishReason reason, openai::Usage usage,
    openai::HoldfastReport report, bool with_logprobs) {
  if (!stream_) {
    whole_.finish = reason;
    if (!with_logprobs) whole_.logprobs.reset();
    whole_.usage = usage;
    whole_.holdfast = std::move(report);
    http::Response response =
        JsonResponse(200, endpoint_ == Endpoint::kChat
                              ? openai::ChatCompletion(head_, whole_)
                              : openai::Completion(head_, whole_));
    co_await Send(exchange_, record_, std::move(response));
    co_return absl::OkStatus();
  }
  std::string events = std::visit(
      [&](const auto& chunks) {
        std::string text = openai::SseData(chunks.Finish(reason, report));
        if (include_usage_) text += openai::SseData(chunks.UsageOnly(usage));
        return text;
      },
      chunks_);
  events += openai::kSseDone;
  absl::Status status = co_await Event(std::move(events));
  if (status.ok()) status = co_await exchange_.EndStream();
  co_return status;
}

asio::awaitable<void> AnswerWriter::Fail(openai::ApiError error) {
  if (!begun_) {
    co_await SendError(exchange_, record_, std::move(error));
    co_return;
  }
  record_.error = error.message;
  record_.stream_error = true;
  const absl::Status status = co_await Event(
      "event: error\n" + openai::SseData(openai::ErrorJson(error)));
  if (status.ok()) (void)co_await exchange_.EndStream();
}

}  // namespace holdfast::gateway
