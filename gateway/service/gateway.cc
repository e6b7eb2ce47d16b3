#include "gateway/service/gateway.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/thread_pool.hpp"
#include "gateway/openai/debug_answers.h"
#include "gateway/service/app.h"
#include "gateway/service/router.h"
#include "gateway/service/served_model.h"
#include "gateway/service/workers.h"
#include "shared/deadlines.h"
#include "shared/tokenizer_proto.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat{500};
constexpr milliseconds kDrainLook{20};
// As many bodies of the largest size are held at once.
constexpr std::uint64_t kBodiesAtOnce = 4;

}  // namespace

// Members are destroyed in reverse: threads have ended by then (Stop), so the
// order only has to keep references valid.
struct Gateway::Impl {
  Impl(unsigned worker_threads, milliseconds io_patience)
      : patience(io_patience), workers(worker_threads) {}

  asio::awaitable<absl::StatusOr<std::shared_ptr<const ServedModel>>> Build(
      v1::Tokenizer tokenizer, v1::EngineStatus status);
  asio::awaitable<void> Beat();
  void SetFatal(absl::Status status);
  // Runs `task` on the io thread and waits for it; false when it has not ended
  // within `patience` (it may still run later).
  bool OnIo(std::function<void()> task);
  // False: the io thread does not answer, and nothing was stopped.
  bool Stop();

  const milliseconds patience;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{
      io.get_executor()};
  asio::thread_pool workers;
  App app;
  Signal beat{io.get_executor()};
  std::atomic<std::uint64_t> beats{0};
  bool stopping = false;  // io thread
  std::thread io_thread;

  std::mutex mutex;
  std::optional<absl::Status> fatal;  // guarded by mutex
};

asio::awaitable<absl::StatusOr<std::shared_ptr<const ServedModel>>>
Gateway::Impl::Build(v1::Tokenizer tokenizer, v1::EngineStatus status) {
  if (app.answers != nullptr && !status.debug()) {
    absl::Status refused = absl::FailedPreconditionError(
        "--debug-answers needs an engine started with --debug");
    SetFatal(refused);
    co_return refused;
  }
  co_return co_await OnWorker(
      workers, [&]() -> absl::StatusOr<std::shared_ptr<const ServedModel>> {
        auto spec = FromProto(tokenizer);
        if (!spec.ok()) return spec.status();
        return ServedModel::Create(*std::move(spec), status.model_name());
      });
}

asio::awaitable<void> Gateway::Impl::Beat() {
  while (!stopping) {
    ++beats;
    co_await beat.Wait(std::chrono::steady_clock::now() + kHeartbeat);
  }
}

void Gateway::Impl::SetFatal(absl::Status status) {
  const std::lock_guard lock(mutex);
  fatal = std::move(status);
}

bool Gateway::Impl::OnIo(std::function<void()> task) {
  const auto done = std::make_shared<std::promise<void>>();
  asio::post(io, [task = std::move(task), done] {
    task();
    done->set_value();
  });
  if (done->get_future().wait_for(patience) == std::future_status::ready)
    return true;
  spdlog::error("the io thread has not answered for {} ms", patience.count());
  return false;
}

bool Gateway::Impl::Stop() {
  const bool told = OnIo([this] {
    stopping = true;
    beat.NotifyAll();
    app.server->CloseAll();
    app.engine->Stop();
    app.engine->tracker()->Close();
  });
  if (!told) return false;
  // Jobs end by themselves: a template and a tokenization have bounds.
  workers.join();
  if (!app.engine->tracker()->WaitForNone(deadlines::kControl))
    spdlog::warn("calls to other daemons did not end in time");
  work.reset();
  io.stop();
  io_thread.join();
  return true;
}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(
    const GatewayConfig& config, const GatewayTimings& timings) {
  const absl::Status valid = Validate(config);
  if (!valid.ok()) return valid;
  auto keys =
      ApiKeys::Load(config.api_keys, config.api_key_file, "--api-key-file");
  if (!keys.ok())
    return absl::InvalidArgumentError(std::string(keys.status().message()));
  auto admin = ApiKeys::Load(config.admin_tokens, config.admin_token_file,
                             "--admin-token-file");
  if (!admin.ok())
    return absl::InvalidArgumentError(std::string(admin.status().message()));
  auto impl = std::make_unique<Impl>(config.workers, timings.io);
  Impl& self = *impl;
  App& app = self.app;
  app.config = config;
  app.keys = *std::move(keys);
  app.admin_tokens = *std::move(admin);
  app.io = &self.io;
  app.workers = &self.workers;
  if (!config.debug_answers.empty()) {
    auto answers = openai::DebugAnswers::Load(config.debug_answers);
    if (!answers.ok()) {
      return absl::InvalidArgumentError(
          "--debug-answers: " + std::string(answers.status().message()));
    }
    app.answers = *std::move(answers);
  }
  EngineLinkOptions engine = timings.engine;
  engine.socket = config.run_dir + "/engine.sock";
  app.engine = std::make_unique<EngineLink>(
      self.io, std::move(engine),
      [&self](v1::Tokenizer tokenizer, v1::EngineStatus status) {
        return self.Build(std::move(tokenizer), std::move(status));
      });
  app.cache = std::make_unique<CacheLink>(
      self.io, config.run_dir + "/cache.sock", app.engine->tracker());

  http::ServerOptions options;
  options.host = config.host;
  options.port = config.port;
  options.limits = timings.http;
  options.limits.body_bytes = std::uint64_t{config.max_body_mb} << 20;
  options.limits.all_body_bytes = kBodiesAtOnce * options.limits.body_bytes;
  options.limits.connections = config.max_connections;
  options.handler = [&app](http::Exchange& exchange) {
    return Serve(app, exchange);
  };
  options.refusal = [&app](int status, std::string_view message) {
    return Refuse(app, status, message);
  };
  auto server = http::Server::Listen(self.io, std::move(options));
  if (!server.ok()) return server.status();
  app.server = *std::move(server);

  app.engine->Start();
  asio::co_spawn(self.io, self.Beat(), asio::detached);
  self.io_thread = std::thread([&self] { self.io.run(); });
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Gateway::~Gateway() {
  if (!impl_->Stop()) (void)impl_.release();
}

std::uint16_t Gateway::port() const { return impl_->app.server->port(); }

std::uint64_t Gateway::heartbeat() const { return impl_->beats; }

std::optional<absl::Status> Gateway::fatal() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->fatal;
}

bool Gateway::Drain(const std::function<bool()>& give_up) {
  const bool told = impl_->OnIo([impl = impl_.get()] {
    impl->app.server->Drain();
    impl->app.engine->EndWaits();
  });
  if (!told) return false;
  const http::ServerStats& stats = impl_->app.server->stats();
  while (stats.connections > 0) {
    if (give_up()) return false;
    std::this_thread::sleep_for(kDrainLook);
  }
  return true;
}

}  // namespace holdfast::gateway
