// The program itself: exit codes, signals, a socket left by a killed engine.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/engine.grpc.pb.h"

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kGiveUp{30};

class MainTest : public ::testing::Test {
 protected:
  MainTest() {
    EXPECT_TRUE(
        model::testing::WriteTinyGguf({.max_context = 4096}, model_).ok());
  }
  ~MainTest() override {
    if (child_ > 0) End(SIGKILL);
  }

  void Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {HOLDFAST_ENGINE_PROGRAM, "--run-dir",
                                 folder_.File("run"), "--no-cache-service"});
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                     folder_.File("log").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(
        posix_spawn(&child_, argv[0], &actions, nullptr, argv.data(), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
  }
  // The exit code, or the signal's number less than zero. The test's own time
  // limit is the deadline.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(child_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int End(int signal) {
    kill(child_, signal);
    return Wait();
  }
  int Run(std::vector<std::string> flags) {
    Start(std::move(flags));
    return Wait();
  }
  std::string Log() const {
    std::ostringstream text;
    text << std::ifstream(folder_.File("log")).rdbuf();
    return text.str();
  }
  bool SocketExists() const {
    return std::filesystem::exists(folder_.File("run/engine.sock"));
  }

  // Connects and waits until the model is loaded.
  std::unique_ptr<v1::Engine::Stub> Serving() {
    // Own connections, tried again at once: the socket comes and goes.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    auto stub = v1::Engine::NewStub(grpc::CreateCustomChannel(
        "unix:" + folder_.File("run/engine.sock"),
        grpc::InsecureChannelCredentials(), arguments));
    const auto end = std::chrono::system_clock::now() + kGiveUp;
    v1::EngineStatus status;
    do {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(end);
      const grpc::Status called = stub->Status(&context, {}, &status);
      EXPECT_TRUE(called.ok()) << called.error_message() << Log();
      if (!called.ok()) return stub;
    } while (status.state() != v1::EngineStatus::SERVING);
    EXPECT_EQ(status.pid(), static_cast<std::uint32_t>(child_));
    exactness_ = status.exactness();
    return stub;
  }
  static v1::EngineStatus Status(v1::Engine::Stub& stub) {
    grpc::ClientContext context;
    v1::EngineStatus status;
    EXPECT_TRUE(stub.Status(&context, {}, &status).ok());
    return status;
  }
  static v1::GenerateRequest Request(int max_tokens) {
    v1::GenerateRequest request;
    for (int i = 0; i < 300; ++i) request.add_prompt_ids(i);
    request.set_max_tokens(max_tokens);
    request.set_ignore_eos(true);
    return request;
  }

  model::testing::TempFolder folder_;
  const std::string model_ = folder_.File("tiny.gguf");
  pid_t child_ = -1;
  std::string exactness_;  // as the last Serving() was told
};

TEST_F(MainTest, BadConfigurationsEndWith78) {
  EXPECT_EQ(Run({}), 78);
  EXPECT_THAT(Log(), HasSubstr("--model"));
  EXPECT_EQ(Run({"--no-such-flag"}), 78);
  EXPECT_EQ(Run({"--model", model_, "--log-level", "loud"}), 78);
  EXPECT_EQ(
      Run({"--model", model_, "--pool-tokens", "512", "--max-context", "1024"}),
      78);
  EXPECT_THAT(Log(), HasSubstr("--max-context 1024"));
  // What only the model or the machine shows is named as well.
  const std::string absent = folder_.File("absent.gguf");
  const std::string text = folder_.File("text.gguf");
  ASSERT_TRUE(model::testing::WriteFile(text, "no model").ok());
  const std::vector<std::vector<std::string>> bad = {
      {"--max-context", "100000"}, {"--pool-gb", "100000"},
      {"--prefix-chunk", "100"},   {"--model-name", "a b"},
      {"--model-name", "a\nb"},    {"--model", absent},
      {"--model", text},
  };
  for (const auto& flags : bad) {
    std::vector<std::string> all = flags;
    if (flags[0] != "--model") all.insert(all.begin(), {"--model", model_});
    EXPECT_EQ(Run(all), 78) << flags[0] << " " << flags[1];
    EXPECT_THAT(Log(), HasSubstr(flags[0])) << flags[1];
    if (flags[0] == "--model") {
      EXPECT_THAT(Log(), HasSubstr(flags[1]));
    }
  }
  EXPECT_FALSE(SocketExists());
}

TEST_F(MainTest, SaysItsExactness) {
  for (const std::string mode : {"row_invariant", "grid"}) {
    Start({"--model", model_, "--exactness=" + mode});
    Serving();
    EXPECT_EQ(exactness_, mode);
    EXPECT_THAT(Log(), HasSubstr("exactness=" + mode));
    EXPECT_EQ(End(SIGTERM), 0);
  }
}

TEST_F(MainTest, WhatAnotherTryMayMendEndsWith1) {
  // A second engine in one run directory.
  Start({"--model", model_});
  Serving();
  const pid_t first = std::exchange(child_, -1);
  EXPECT_EQ(Run({"--model", model_}), 1);
  child_ = first;
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(MainTest, AnotherNameIsTheSameModel) {
  Start({"--model", model_});
  auto stub = Serving();
  const v1::EngineStatus before = Status(*stub);
  stub.reset();
  EXPECT_EQ(End(SIGTERM), 0);
  Start({"--model", model_, "--model-name", "mine"});
  stub = Serving();
  const v1::EngineStatus after = Status(*stub);
  stub.reset();
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_EQ(before.model_name(), "tiny-llama");
  EXPECT_EQ(after.model_name(), "mine");
  EXPECT_EQ(after.fingerprint(), before.fingerprint());
}

TEST_F(MainTest, SaysItsVersion) { EXPECT_EQ(Run({"--version"}), 0); }

TEST_F(MainTest, SigtermFinishesWhatRunsAndEndsWith0) {
  Start({"--model", model_, "--debug"});
  auto stub = Serving();
  EXPECT_THAT(Log(), HasSubstr("DEBUG ENGINE"));
  auto context = std::make_unique<grpc::ClientContext>();
  auto stream = stub->Generate(context.get(), Request(600));
  v1::GenerateEvent event;
  ASSERT_TRUE(stream->Read(&event));  // it runs
  kill(child_, SIGTERM);
  std::size_t tokens = 0;
  v1::GenerateEvent last = event;
  while (stream->Read(&event)) {
    tokens += event.tokens().tokens_size();
    last = event;
  }
  EXPECT_TRUE(stream->Finish().ok());
  stream.reset();
  context.reset();
  EXPECT_EQ(tokens, 600u);
  EXPECT_EQ(last.finished().reason(), v1::Finished::LENGTH);
  stub.reset();  // a client without a call would not see the server's goodbye
  EXPECT_EQ(Wait(), 0) << Log();
  EXPECT_THAT(Log(), HasSubstr("drained finished=1 cancelled=0"));
  EXPECT_FALSE(SocketExists());
}

TEST_F(MainTest, AKilledEngineIsReplaced) {
  Start({"--model", model_});
  Serving();
  EXPECT_EQ(End(SIGKILL), -SIGKILL);
  EXPECT_TRUE(SocketExists());
  Start({"--model", model_});
  auto stub = Serving();
  auto context = std::make_unique<grpc::ClientContext>();
  auto stream = stub->Generate(context.get(), Request(3));
  v1::GenerateEvent event, last;
  while (stream->Read(&event)) last = event;
  EXPECT_TRUE(stream->Finish().ok());
  stream.reset();
  context.reset();
  EXPECT_EQ(last.finished().cache().miss_reason(), "cold");
  stub.reset();
  EXPECT_EQ(End(SIGTERM), 0) << Log();
}

}  // namespace
}  // namespace holdfast::engine
