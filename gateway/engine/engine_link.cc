#include "gateway/engine/engine_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/co_spawn.hpp"
#include "fmt/format.h"
#include "shared/local_channel.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

// A vocabulary of a million entries takes about 30 MB.
constexpr std::uint64_t kMaxTokenizerBytes = 512u << 20;
}  // namespace

const char* EngineStateName(EngineState state) {
  switch (state) {
    case EngineState::kAbsent:
      return "absent";
    case EngineState::kLoading:
      return "loading";
    case EngineState::kServing:
      return "serving";
    case EngineState::kDraining:
      return "draining";
    case EngineState::kUnusable:
      return "unusable";
  }
  return "unknown";
}

EngineLink::EngineLink(asio::io_context& io, EngineLinkOptions options,
                       BuildModel build_model)
    : io_(io),
      options_(std::move(options)),
      build_model_(std::move(build_model)),
      tracker_(std::make_shared<CallTracker>()),
      stub_(v1::Engine::NewStub(LocalChannel(options_.socket, options_.retry))),
      last_answer_(steady_clock::now()),
      changed_(io.get_executor()),
      poked_(io.get_executor()) {}

EngineLink::~EngineLink() = default;

void EngineLink::Start() {
  asio::co_spawn(io_, Watch(), [](std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);  // a bug: end the process
  });
}

void EngineLink::Stop() {
  stopped_ = true;
  poked_.NotifyAll();
  changed_.NotifyAll();
}

void EngineLink::Poke() { poked_.NotifyAll(); }

void EngineLink::ForgetModel(const std::string& fingerprint) {
  if (view_.state == EngineState::kServing && view_.fingerprint == fingerprint)
    SetState(EngineState::kLoading, "the engine has another model");
  Poke();
}

void EngineLink::NoteDraining() {
  if (view_.state == EngineState::kServing)
    SetState(EngineState::kDraining, "the engine is stopping");
  Poke();
}

void EngineLink::EndWaits() {
  waits_end_ = true;
  changed_.NotifyAll();
}

void EngineLink::Suspect(std::string detail) {
  if (view_.state == EngineState::kServing)
    SetState(EngineState::kAbsent, std::move(detail));
  Poke();
}

void EngineLink::SetState(EngineState state, std::string detail) {
  const bool changed = view_.state != state;
  if (changed) spdlog::info("engine {}: {}", EngineStateName(state), detail);
  view_.state = state;
  view_.detail = std::move(detail);
  if (changed) changed_.NotifyAll();
}

asio::awaitable<void> EngineLink::Watch() {
  while (!stopped_) {
    co_await Look();
    const auto pause =
        view_.state == EngineState::kServing ? options_.poll : options_.retry;
    if (!stopped_) co_await poked_.Wait(steady_clock::now() + pause);
  }
}

asio::awaitable<void> EngineLink::Look() {
  auto answer = co_await AwaitUnary<v1::EngineStatus>(
      io_.get_executor(), tracker_, "engine Status", options_.control,
      v1::EngineStatusRequest(),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->Status(context, request, response, std::move(done));
      });
  if (stopped_) co_return;
  if (!answer.ok()) {
    SetState(EngineState::kAbsent, std::string(answer.status().message()));
    co_return;
  }
  last_answer_ = steady_clock::now();
  const v1::EngineStatus status = *std::move(answer);
  view_.status = status;
  switch (status.state()) {
    case v1::EngineStatus::SERVING:
      if (view_.model == nullptr || view_.fingerprint != status.fingerprint()) {
        co_await LoadModel(status);
      } else {
        SetState(EngineState::kServing, "serving " + status.model_name());
      }
      break;
    case v1::EngineStatus::DRAINING:
      SetState(EngineState::kDraining, "the engine is stopping");
      break;
    default:
      SetState(EngineState::kLoading, "the engine loads its model");
  }
}

asio::awaitable<void> EngineLink::LoadModel(const v1::EngineStatus& status) {
  if (view_.state == EngineState::kUnusable && unusable_pid_ == status.pid())
    co_return;
  SetState(EngineState::kLoading, "the gateway reads the model's tokenizer");
  auto tokenizer = co_await FetchTokenizer(status.fingerprint());
  if (stopped_) co_return;
  if (!tokenizer.ok()) {  // tried again at the next look
    SetState(EngineState::kLoading, std::string(tokenizer.status().message()));
    co_return;
  }
  auto model = co_await build_model_(*std::move(tokenizer), status);
  if (stopped_) co_return;
  if (!model.ok()) {
    unusable_pid_ = status.pid();
    view_.model = nullptr;
    spdlog::error("model {} cannot be served: {}", status.model_name(),
                  std::string(model.status().message()));
    SetState(EngineState::kUnusable, std::string(model.status().message()));
    co_return;
  }
  view_.model = *std::move(model);
  view_.fingerprint = status.fingerprint();
  SetState(EngineState::kServing, "serving " + status.model_name());
}

asio::awaitable<absl::StatusOr<v1::Tokenizer>> EngineLink::FetchTokenizer(
    const std::string& fingerprint) {
  const v1::GetTokenizerRequest request;
  StreamCall<v1::TokenizerPart> call(
      io_.get_executor(), tracker_, "engine GetTokenizer",
      deadlines::kTokenizerLoad, [&](auto* context, auto* reactor) {
        stub_->async()->GetTokenizer(context, &request, reactor);
      });
  std::string bytes;
  std::uint64_t total = 0;
  while (true) {
    auto part = co_await call.Next(SteadyTime::max());
    if (part.status().code() == absl::StatusCode::kOutOfRange) break;
    if (!part.ok()) co_return part.status();
    const v1::TokenizerPart& piece = **part;
    if (piece.fingerprint() != fingerprint) {
      co_return absl::AbortedError(
          "engine GetTokenizer: another model than Status told of");
    }
    total = piece.total_bytes();
    if (bytes.size() + piece.data().size() > kMaxTokenizerBytes) {
      co_return absl::ResourceExhaustedError(absl::StrCat(
          "engine GetTokenizer: more than ", kMaxTokenizerBytes, " bytes"));
    }
    bytes += piece.data();
  }
  v1::Tokenizer tokenizer;
  if (bytes.size() != total || !tokenizer.ParseFromString(bytes)) {
    co_return absl::DataLossError(
        fmt::format("engine GetTokenizer: {} of {} bytes, or they do not parse",
                    bytes.size(), total));
  }
  co_return tokenizer;
}

asio::awaitable<absl::StatusOr<EngineView>> EngineLink::WaitReady(
    SteadyTime until, std::function<bool()> give_up) {
  while (true) {
    if (give_up()) co_return absl::CancelledError("the client has gone");
    if (stopped_) co_return absl::UnavailableError("the gateway is stopping");
    if (view_.state == EngineState::kServing) co_return view_;
    if (waits_end_) {
      co_return absl::UnavailableError(
          fmt::format("the gateway is stopping, and the engine is {}: {}",
                      EngineStateName(view_.state), view_.detail));
    }
    if (view_.state == EngineState::kUnusable || steady_clock::now() >= until) {
      co_return absl::UnavailableError(fmt::format(
          "the engine is {}: {}", EngineStateName(view_.state), view_.detail));
    }
    co_await changed_.Wait(until);
  }
}

std::unique_ptr<GenerateStream> EngineLink::Generate(
    v1::GenerateRequest request) {
  return std::unique_ptr<GenerateStream>(
      new GenerateStream(*this, std::move(request)));
}

asio::awaitable<absl::StatusOr<v1::GetRecordsResponse>> EngineLink::GetRecords(
    v1::GetRecordsRequest request) {
  return AwaitUnary<v1::GetRecordsResponse>(
      io_.get_executor(), tracker_, "engine GetRecords", deadlines::kRecords,
      std::move(request),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->GetRecords(context, request, response, std::move(done));
      });
}

asio::awaitable<absl::StatusOr<v1::RecordTurnResponse>> EngineLink::RecordTurn(
    v1::RecordTurnRequest request) {
  return AwaitUnary<v1::RecordTurnResponse>(
      io_.get_executor(), tracker_, "engine RecordTurn", deadlines::kRecords,
      std::move(request),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->RecordTurn(context, request, response, std::move(done));
      });
}

asio::awaitable<absl::StatusOr<std::string>> EngineLink::Metrics() {
  auto answer = co_await AwaitUnary<v1::EngineMetrics>(
      io_.get_executor(), tracker_, "engine Metrics", options_.control,
      v1::EngineMetricsRequest(),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->Metrics(context, request, response, std::move(done));
      });
  if (!answer.ok()) co_return answer.status();
  co_return std::move(*answer->mutable_prometheus_text());
}

asio::awaitable<absl::StatusOr<v1::EngineStats>> EngineLink::Stats() {
  return AwaitUnary<v1::EngineStats>(
      io_.get_executor(), tracker_, "engine Stats", options_.control,
      v1::EngineStatsRequest(),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->Stats(context, request, response, std::move(done));
      });
}

asio::awaitable<absl::StatusOr<v1::ClearCacheResponse>> EngineLink::ClearCache(
    v1::ClearCacheRequest request) {
  return AwaitUnary<v1::ClearCacheResponse>(
      io_.get_executor(), tracker_, "engine ClearCache", deadlines::kCacheClear,
      std::move(request),
      [this](auto* context, auto* message, auto* response, auto done) {
        stub_->async()->ClearCache(context, message, response, std::move(done));
      });
}

GenerateStream::GenerateStream(EngineLink& link, v1::GenerateRequest request)
    : link_(link),
      request_(std::move(request)),
      call_(link.io_.get_executor(), link.tracker_, "engine Generate",
            std::nullopt,
            [this](auto* context, auto* reactor) {
              link_.stub_->async()->Generate(context, &request_, reactor);
            }),
      last_event_(steady_clock::now()) {}

absl::Status GenerateStream::Stuck(SteadyTime now) const {
  const EngineLinkOptions& options = link_.options_;
  const SteadyTime heard = std::max(last_event_, link_.last_answer_);
  if (now - heard >= options.silent) {
    return absl::DeadlineExceededError(fmt::format(
        "the engine has not answered for {} ms", options.silent.count()));
  }
  const auto patience = running_ ? options.stall : options.queue;
  if (now - last_event_ >= patience) {
    return absl::DeadlineExceededError(
        fmt::format("the engine has made no step of this request for {} ms",
                    patience.count()));
  }
  return absl::OkStatus();
}

asio::awaitable<absl::StatusOr<std::optional<v1::GenerateEvent>>>
GenerateStream::Next(SteadyTime until) {
  while (true) {
    // Wakes at least as often as the link polls, to see whether it is stuck.
    const SteadyTime now = steady_clock::now();
    const SteadyTime wake = std::min(
        until,
        now + std::max(link_.options_.poll, std::chrono::milliseconds(1)));
    auto event = co_await call_.Next(wake);
    if (!event.ok()) {
      if (event.status().code() == absl::StatusCode::kCancelled)
        co_return event.status();
      link_.Suspect(std::string(event.status().message()));
      co_return absl::UnavailableError(
          absl::StrCat("the engine ended before the answer was complete (",
                       event.status().message(), ")"));
    }
    if (event->has_value()) {
      last_event_ = steady_clock::now();
      running_ = true;
      co_return event;
    }
    const absl::Status stuck = Stuck(steady_clock::now());
    if (!stuck.ok()) {
      call_.Cancel();
      co_return stuck;
    }
    if (steady_clock::now() >= until) co_return event;
  }
}

}  // namespace holdfast::gateway
