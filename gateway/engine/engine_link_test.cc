#include "gateway/engine/engine_link.h"

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/use_future.hpp"
#include "gateway/engine/testing/fake_engine.h"
#include "gateway/engine/testing/take.h"
#include "gtest/gtest.h"

namespace holdfast::gateway {

class ServedModel {
 public:
  std::string chat_template;
  std::string name;
};

namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::FakeEngine;

class EngineLinkTest : public ::testing::Test {
 protected:
  EngineLinkTest() {
    std::string pattern = ::testing::TempDir() + "linkXXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.socket = folder_ + "/engine.sock";
    options_.retry = milliseconds(5);
    options_.poll = milliseconds(5);
    tokenizer_.set_chat_template(std::string(5000, 't'));
  }

  // Runs a coroutine on the io thread and waits for it.
  template <typename Coroutine>
  auto Run(Coroutine coroutine) {
    return testing::Take(
        asio::co_spawn(io_, std::move(coroutine), asio::use_future));
  }

  ~EngineLinkTest() override {
    if (thread_.joinable()) {
      Run([this]() -> asio::awaitable<void> {
        link_->Stop();
        co_return;
      });
      EXPECT_TRUE(link_->tracker()->WaitForNone(milliseconds(5000)));
      work_.reset();
      io_.stop();
      thread_.join();
    }
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }

  void StartLink() {
    link_ = std::make_unique<EngineLink>(
        io_, options_,
        [this](v1::Tokenizer tokenizer, v1::EngineStatus status) {
          return Build(std::move(tokenizer), std::move(status));
        });
    asio::post(io_, [this] { link_->Start(); });
    thread_ = std::thread([this] { io_.run(); });
  }

  void StartEngine(const std::string& fingerprint) {
    engine_ = std::make_unique<FakeEngine>(options_.socket, fingerprint);
    engine_->SetTokenizer(tokenizer_);
    engine_->Start();
  }

  asio::awaitable<absl::StatusOr<std::shared_ptr<const ServedModel>>> Build(
      v1::Tokenizer tokenizer, v1::EngineStatus status) {
    ++builds_;
    if (!build_status_.ok()) co_return build_status_;
    auto model = std::make_shared<ServedModel>();
    model->chat_template = tokenizer.chat_template();
    model->name = status.model_name();
    co_return model;
  }

  absl::StatusOr<EngineView> WaitReady(milliseconds wait = milliseconds(9000)) {
    auto view = Run(
        [this,
         wait]() -> asio::awaitable<std::optional<absl::StatusOr<EngineView>>> {
          auto result = co_await link_->WaitReady(steady_clock::now() + wait,
                                                  [this] { return give_up_; });
          co_return result;
        });
    return *view;
  }

  // Waits until a condition on the view holds, at most 10 s.
  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      const bool done = Run([this, &condition]() -> asio::awaitable<bool> {
        co_return condition(link_->view());
      });
      if (done) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  using Event = absl::StatusOr<std::optional<v1::GenerateEvent>>;
  Event Next(GenerateStream& stream, milliseconds wait = milliseconds(9000)) {
    auto event = Run([&]() -> asio::awaitable<std::optional<Event>> {
      auto result = co_await stream.Next(steady_clock::now() + wait);
      co_return result;
    });
    return *event;
  }
  std::unique_ptr<GenerateStream> Generate() {
    return Run([this]() -> asio::awaitable<std::unique_ptr<GenerateStream>> {
      v1::GenerateRequest request;
      request.add_prompt_ids(7);
      co_return link_->Generate(std::move(request));
    });
  }
  void Drop(std::unique_ptr<GenerateStream>& stream) {
    Run([&]() -> asio::awaitable<void> {
      stream.reset();
      co_return;
    });
  }

  std::string folder_;
  EngineLinkOptions options_;
  v1::Tokenizer tokenizer_;
  absl::Status build_status_;
  bool give_up_ = false;
  int builds_ = 0;
  asio::io_context io_{1};
  std::unique_ptr<EngineLink> link_;
  std::unique_ptr<FakeEngine> engine_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::thread thread_;
};

TEST_F(EngineLinkTest, WaitsForAnEngineThatComes) {
  StartLink();
  const auto absent = WaitReady(milliseconds(20));
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(absent.status().message().find("absent"), std::string::npos)
      << absent.status();
  StartEngine("one");
  const auto view = WaitReady();
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->model->chat_template, tokenizer_.chat_template());
  EXPECT_EQ(view->fingerprint, "one");
  EXPECT_EQ(view->status.max_context_tokens(), 4096u);
}

TEST_F(EngineLinkTest, LoadingAndDrainingAreNotReady) {
  StartEngine("one");
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::LOADING); });
  StartLink();
  EXPECT_TRUE(Eventually(
      [](const auto& view) { return view.state == EngineState::kLoading; }));
  EXPECT_FALSE(WaitReady(milliseconds(20)).ok());
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::SERVING); });
  EXPECT_TRUE(WaitReady().ok());
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::DRAINING); });
  EXPECT_TRUE(Eventually(
      [](const auto& view) { return view.state == EngineState::kDraining; }));
}

TEST_F(EngineLinkTest, ReadsTheTokenizerAgainOnlyForAnotherModel) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  const auto restart = [&](const std::string& fingerprint) {
    engine_.reset();
    EXPECT_TRUE(Eventually(
        [](const auto& view) { return view.state == EngineState::kAbsent; }));
    StartEngine(fingerprint);
    return WaitReady();
  };
  ASSERT_TRUE(restart("one").ok());
  EXPECT_EQ(builds_, 1);
  const auto other = restart("two");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(builds_, 2);
  EXPECT_EQ(other->fingerprint, "two");
}

TEST_F(EngineLinkTest, ForgottenModelIsCheckedBeforeTheNextRequest) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  engine_->SetStatus([](auto& status) { status.set_fingerprint("two"); });
  Run([this]() -> asio::awaitable<void> {
    link_->ForgetModel("one");
    co_return;
  });
  const auto view = WaitReady();
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->fingerprint, "two");
}

TEST_F(EngineLinkTest, ModelThatCannotBeServedFailsAtOnce) {
  build_status_ = absl::InvalidArgumentError("pre_tokenizer: no such thing");
  StartEngine("one");
  StartLink();
  const auto view = WaitReady();
  EXPECT_EQ(view.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(view.status().message().find("no such thing"), std::string::npos);
  // Looked at, but not tried again until another engine comes.
  const int looks = engine_->status_calls();
  EXPECT_TRUE(Eventually(
      [&](const auto&) { return engine_->status_calls() > looks + 2; }));
  EXPECT_EQ(builds_, 1);
  engine_.reset();
  EXPECT_TRUE(Eventually(
      [](const auto& view) { return view.state == EngineState::kAbsent; }));
  build_status_ = absl::OkStatus();
  StartEngine("two");
  engine_->SetStatus([](auto& status) { status.set_pid(2); });
  EXPECT_TRUE(WaitReady().ok());
}

TEST_F(EngineLinkTest, WaiterGivesUp) {
  StartLink();
  auto waiting = asio::co_spawn(
      io_,
      [this]() -> asio::awaitable<absl::StatusCode> {
        auto result = co_await link_->WaitReady(
            steady_clock::now() + std::chrono::hours(1),
            [this] { return give_up_; });
        co_return result.status().code();
      },
      asio::use_future);
  Run([this]() -> asio::awaitable<void> {
    give_up_ = true;
    link_->Wake();
    co_return;
  });
  EXPECT_EQ(testing::Take(std::move(waiting)), absl::StatusCode::kCancelled);
}

TEST_F(EngineLinkTest, StreamsEventsInOrder) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  constexpr std::uint32_t kMany = 500;  // more than the queue holds
  engine_->SetGenerator([](const auto&, auto&, auto& writer) {
    for (std::uint32_t i = 0; i < kMany; ++i)
      writer.Write(testing::Tokens({i}));
    writer.Write(testing::Finished(v1::Finished::STOP, 0, 1, kMany));
    return grpc::Status::OK;
  });
  auto stream = Generate();
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const Event event = Next(*stream);
    ASSERT_TRUE(event.ok()) << event.status();
    ASSERT_EQ((*event)->tokens().tokens(0).id(), i);
  }
  EXPECT_TRUE((*Next(*stream))->has_finished());
  // Asked for more, it says that nothing more comes.
  EXPECT_EQ(Next(*stream).status().code(), absl::StatusCode::kUnavailable);
  Drop(stream);
}

// The engine is held back when nobody takes its events.
TEST_F(EngineLinkTest, Backpressure) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  std::promise<bool> cancelled;
  engine_->SetGenerator([&](const auto&, auto& context, auto& writer) {
    // About 64 KiB an event, 1 GiB in all: far over any flow-control window.
    const auto large = testing::Tokens(std::vector<std::uint32_t>(32768, 200));
    int sent = 0;
    while (sent < 16384 && writer.Write(large)) ++sent;
    cancelled.set_value(sent < 16384 && testing::WaitForCancel(context));
    return grpc::Status::OK;
  });
  auto stream = Generate();
  EXPECT_TRUE((*Next(*stream))->has_tokens());
  auto held_back = cancelled.get_future();
  EXPECT_EQ(held_back.wait_for(milliseconds(300)), std::future_status::timeout);
  Drop(stream);
  EXPECT_TRUE(testing::Take(std::move(held_back)));
}

TEST_F(EngineLinkTest, CancelReachesTheEngineAndTheWaiter) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  std::promise<bool> cancelled;
  engine_->SetGenerator([&](const auto&, auto& context, auto& writer) {
    writer.Write(testing::Progress(1, 2));
    cancelled.set_value(testing::WaitForCancel(context));
    return grpc::Status::CANCELLED;
  });
  auto stream = Generate();
  EXPECT_TRUE((*Next(*stream))->has_progress());
  EXPECT_FALSE((*Next(*stream, milliseconds(20))).has_value());
  auto waiting = asio::co_spawn(
      io_,
      [&]() -> asio::awaitable<absl::StatusCode> {
        auto result = co_await stream->Next(SteadyTime::max());
        co_return result.status().code();
      },
      asio::use_future);
  Run([&]() -> asio::awaitable<void> {
    stream->Cancel();
    co_return;
  });
  EXPECT_EQ(testing::Take(std::move(waiting)), absl::StatusCode::kCancelled);
  EXPECT_TRUE(testing::Take(cancelled.get_future()));
  Drop(stream);
}

TEST_F(EngineLinkTest, DroppedStreamIsCancelled) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  std::promise<void> started;
  std::promise<bool> cancelled;
  engine_->SetGenerator([&](const auto&, auto& context, auto&) {
    started.set_value();
    cancelled.set_value(testing::WaitForCancel(context));
    return grpc::Status::CANCELLED;
  });
  auto stream = Generate();
  // A call dropped earlier never gets there.
  testing::Take(started.get_future());
  Drop(stream);
  EXPECT_TRUE(testing::Take(cancelled.get_future()));
}

TEST_F(EngineLinkTest, EngineThatDies) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  engine_->SetGenerator([](const auto&, auto& context, auto& writer) {
    writer.Write(testing::Tokens({1}));
    testing::WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  auto stream = Generate();
  EXPECT_TRUE((*Next(*stream))->has_tokens());
  engine_->Kill();
  EXPECT_EQ(Next(*stream).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually(
      [](const auto& view) { return view.state == EngineState::kAbsent; }));
  Drop(stream);
}

// Stopped like by SIGSTOP: the connection stays, no call is answered.
TEST_F(EngineLinkTest, SilentEngineFailsItsStreams) {
  options_.control = milliseconds(20);
  options_.silent = milliseconds(100);
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  engine_->SetGenerator([](const auto&, auto& context, auto&) {
    testing::WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  engine_->HoldStatus(true);
  auto stream = Generate();
  const Event event = Next(*stream);
  EXPECT_EQ(event.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(event.status().message().find("has not answered"),
            std::string::npos);
  Drop(stream);
}

TEST_F(EngineLinkTest, RequestThatMakesNoStepFails) {
  options_.stall = milliseconds(100);
  options_.queue = milliseconds(200);
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  engine_->SetGenerator([](const auto&, auto& context, auto& writer) {
    writer.Write(testing::Progress(1, 2));
    testing::WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  auto stream = Generate();
  EXPECT_TRUE((*Next(*stream))->has_progress());
  const Event event = Next(*stream);
  EXPECT_EQ(event.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(event.status().message().find("no step"), std::string::npos);
  Drop(stream);
}

TEST_F(EngineLinkTest, Metrics) {
  StartEngine("one");
  StartLink();
  ASSERT_TRUE(WaitReady().ok());
  const auto text = Run([this]() -> asio::awaitable<std::string> {
    auto result = co_await link_->Metrics();
    co_return result.ok() ? *result : result.status().ToString();
  });
  EXPECT_EQ(text, "fake_engine_metric 1\n");
}

}  // namespace
}  // namespace holdfast::gateway
