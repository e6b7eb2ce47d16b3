// The engine's program on an emulated device: it serves, says what its memory
// went to, and ends with a message and a code when the device has none left or
// fails.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "tests/cuda_emulation/program.h"

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kIllegalAddress = 700;

// What a service manager hears of programs that are started while this lives.
class Pings {
 public:
  explicit Pings(const std::string& path)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~Pings() {
    unsetenv("NOTIFY_SOCKET");
    close(socket_);
  }
  // Whether one comes, in a time in which one must.
  bool Come() {
    const auto until = steady_clock::now() + emulation::kGiveUp;
    while (steady_clock::now() < until) {
      if (Read() && message_.find("WATCHDOG=1") != std::string::npos) {
        return true;
      }
    }
    return false;
  }
  // Whether none comes any more, for the time of several.
  bool End() {
    const auto until = steady_clock::now() + emulation::kGiveUp;
    while (steady_clock::now() < until) {
      if (!Read()) return true;
    }
    return false;
  }

 private:
  using steady_clock = std::chrono::steady_clock;

  bool Read() {
    pollfd ready = {socket_, POLLIN, 0};
    if (poll(&ready, 1, 3000) != 1) return false;
    char text[512];
    const ssize_t bytes = recv(socket_, text, sizeof(text), 0);
    message_.assign(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return true;
  }

  const int socket_;
  std::string message_;
};

class CudaProcessTest : public ::testing::Test {
 protected:
  CudaProcessTest() {
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, model_).ok());
  }
  void Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), HOLDFAST_ENGINE_PROGRAM);
    for (const std::string& flag :
         {std::string("--run-dir"), folder_.File("run"),
          std::string("--no-cache-service"), std::string("--backend=cuda"),
          std::string("--model"), model_, std::string("--prefix-chunk=256"),
          std::string("--pool-tokens=2048"), std::string("--max-context=1024"),
          std::string("--resident-gb=0.01")}) {
      flags.push_back(flag);
    }
    program_.Start(std::move(flags));
  }
  std::string Log() const { return program_.Log(); }
  // Connects and waits until the model is loaded.
  std::unique_ptr<v1::Engine::Stub> Serving() {
    auto stub = v1::Engine::NewStub(
        grpc::CreateChannel("unix:" + folder_.File("run/engine.sock"),
                            grpc::InsecureChannelCredentials()));
    const auto end = std::chrono::system_clock::now() + emulation::kGiveUp;
    v1::EngineStatus status;
    do {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(end);
      const grpc::Status called = stub->Status(&context, {}, &status);
      EXPECT_TRUE(called.ok()) << called.error_message() << Log();
      if (!called.ok()) return stub;
    } while (status.state() != v1::EngineStatus::SERVING);
    EXPECT_EQ(status.exactness(), "grid");
    return stub;
  }
  static v1::GenerateEvent Generate(v1::Engine::Stub& stub, int rows) {
    v1::GenerateRequest request;
    for (int i = 0; i < rows; ++i) request.add_prompt_ids(i % 200);
    request.set_max_tokens(2);
    request.set_ignore_eos(true);
    grpc::ClientContext context;
    auto stream = stub.Generate(&context, request);
    v1::GenerateEvent event;
    v1::GenerateEvent last;
    while (stream->Read(&event)) last = event;
    (void)stream->Finish();
    return last;
  }

  // Sampled, and resuming from nothing of another salt.
  static std::vector<int> Tokens(v1::Engine::Stub& stub, int rows,
                                 const std::string& salt) {
    v1::GenerateRequest request;
    for (int i = 0; i < rows; ++i) request.add_prompt_ids(i * 7 % 200);
    request.set_max_tokens(6);
    request.set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0.7f);
    request.mutable_sampling()->set_top_k(12);
    request.mutable_sampling()->set_seed(rows);
    request.set_salt(salt);
    grpc::ClientContext context;
    auto stream = stub.Generate(&context, request);
    std::vector<int> ids;
    v1::GenerateEvent event;
    while (stream->Read(&event)) {
      for (const auto& token : event.tokens().tokens()) {
        ids.push_back(token.id());
      }
    }
    (void)stream->Finish();
    return ids;
  }

  model::testing::TempFolder folder_;
  const std::string model_ = folder_.File("tiny.gguf");
  emulation::Program program_{folder_.File("log")};
};

TEST_F(CudaProcessTest, ServesResumesAndEndsWhenTheDeviceIsLost) {
  Start({});
  auto stub = Serving();
  const v1::GenerateEvent cold = Generate(*stub, 280);
  EXPECT_EQ(cold.finished().reason(), v1::Finished::LENGTH) << Log();
  const v1::GenerateEvent warm = Generate(*stub, 270);
  EXPECT_EQ(warm.finished().cache().resumed_at_tokens(), 256u) << Log();
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("backend name=cuda"));
  EXPECT_THAT(log, HasSubstr("rows (KV)"));
  EXPECT_THAT(log, HasSubstr("anchors and states"));
  EXPECT_THAT(log, HasSubstr("left of the budget"));
  EXPECT_THAT(log, HasSubstr("arena kind=none"));

  program_.Tell("cudaLaunchKernelEx " + std::to_string(kIllegalAddress));
  // It may take effect a request later: its reader is a thread of its own.
  v1::GenerateEvent failed;
  do {
    failed = Generate(*stub, 5);
  } while (failed.finished().reason() == v1::Finished::LENGTH);
  EXPECT_THAT(Log(), HasSubstr("illegal memory access"));
  stub.reset();
  EXPECT_EQ(program_.Wait(), 71) << Log();
  EXPECT_THAT(Log(), HasSubstr("failed for good"));

  // A new process takes its place. A call of the device that does not return
  // ends its pings: the service manager's watchdog then does what is done here.
  std::optional<Pings> pings(folder_.File("notify"));
  Start({});
  stub = Serving();
  EXPECT_EQ(Generate(*stub, 5).finished().reason(), v1::Finished::LENGTH)
      << Log();
  ASSERT_TRUE(pings->Come()) << Log();
  program_.Tell("hold cudaStreamSynchronize");
  auto hangs = std::async(std::launch::async, [&stub] {
    v1::GenerateEvent last;
    do {  // the first may be over before the call is held
      last = Generate(*stub, 5);
    } while (last.finished().reason() == v1::Finished::LENGTH);
  });
  ASSERT_TRUE(program_.Logs({"holding cudaStreamSynchronize"}));
  EXPECT_TRUE(pings->End()) << Log();
  // Nor does a stop wait for it for ever: a second signal ends the wait.
  program_.Signal(SIGTERM);
  ASSERT_TRUE(pings->Come());  // it drains
  pings.reset();               // a full queue would hold it up
  EXPECT_EQ(program_.End(SIGTERM), 71) << Log();
  EXPECT_THAT(Log(), HasSubstr("does not return from a call"));
  hangs.get();
}

// Three clients at once get what each gets alone.
TEST_F(CudaProcessTest, SeatsAnswerAsIfAlone) {
  Start({"--parallel=3"});
  auto stub = Serving();
  const std::vector<int> prompts = {10, 40, 275};
  std::vector<std::vector<int>> alone;
  for (const int rows : prompts) alone.push_back(Tokens(*stub, rows, "alone"));
  std::vector<std::vector<int>> together(prompts.size());
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    clients.emplace_back(
        [&, i] { together[i] = Tokens(*stub, prompts[i], "together"); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
  EXPECT_EQ(alone[2].size(), 6u) << Log();
  EXPECT_THAT(Log(), HasSubstr("chosen_by_backend=6"));
}

TEST_F(CudaProcessTest, MemoryThatIsNotThereEndsTheStartWithWhatItWasFor) {
  Start({"--emulated-memory-mb=24"});
  EXPECT_EQ(program_.Wait(), 1);
  EXPECT_THAT(Log(), HasSubstr("bytes of device memory for"));
}

}  // namespace
}  // namespace holdfast::engine
