// Arena cuda_ipc with both programs on an emulated device: the cache service
// maps the engine's memory and copies rows out of it, either may die while it
// does, and what it may not map it is given as copies.
#include <future>
#include <memory>
#include <string>
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

using emulation::kGiveUp;
using emulation::Program;
using ::testing::HasSubstr;
using ::testing::Not;
using Ids = std::vector<std::uint32_t>;
using Words = std::vector<std::string>;

constexpr char kIpc[] = "arena kind=cuda_ipc reason=\"cache service pid";
constexpr char kRefused[] =
    "arena kind=pinned reason=\"no cuda_ipc: cache service";
constexpr std::uint32_t kGrid = 256;

struct Answer {
  v1::Finished finished;
  Ids ids;
};

class CudaIpcTest : public ::testing::Test {
 protected:
  CudaIpcTest() {
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, model_).ok());
  }

  void StartCached(Words flags = {}) {
    flags.insert(flags.begin(), HOLDFAST_CACHED_PROGRAM);
    for (const std::string& flag :
         {std::string("--run-dir"), folder_.File("run"),
          std::string("--cache-dir"), folder_.File("cache"),
          std::string("--disk-free-gb=0"),
          std::string("--allow-small-free-space"),
          std::string("--disk-min-tokens=256"),
          std::string("--admit-after=1")}) {
      flags.push_back(flag);
    }
    cached_.Start(flags);
    ASSERT_TRUE(cached_.Logs({"serving run_dir="}));
  }
  // Returns when it is attached. `staging_gb`: of states and copies.
  void StartEngine(const std::string& staging_gb = "0.1") {
    engine_.Start(
        {HOLDFAST_ENGINE_PROGRAM, "--run-dir", folder_.File("run"),
         "--backend=cuda", "--model", model_, "--prefix-chunk=256",
         "--pool-tokens=4096", "--max-context=1024", "--resident-gb=0.01",
         "--debug", "--staging-gb=" + staging_gb,
         "--planner-costs=prefill=10,store=1000,disk=1000,spill=1000"});
    ASSERT_TRUE(engine_.Logs({"serving socket="}));
    ASSERT_TRUE(engine_.Logs({"attached to cache service"}));
    stub_ = v1::Engine::NewStub(
        grpc::CreateChannel("unix:" + folder_.File("run/engine.sock"),
                            grpc::InsecureChannelCredentials()));
  }
  static Ids Prompt(std::uint32_t rows, std::uint32_t seed) {
    Ids ids;
    for (std::uint32_t i = 0; i < rows; ++i) {
      ids.push_back((i * 7 + seed * 13) % 200 + 5);
    }
    return ids;
  }
  Answer Ask(const std::string& session, const Ids& prompt) {
    v1::GenerateRequest request;
    request.mutable_prompt_ids()->Add(prompt.begin(), prompt.end());
    request.set_session_key(session);
    request.set_max_tokens(3);
    request.set_ignore_eos(true);
    request.set_digest(true);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUp);
    // The channel may still back off from the engine before.
    context.set_wait_for_ready(true);
    const auto stream = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateEvent event;
    while (stream->Read(&event)) {
      for (const v1::OutputToken& token : event.tokens().tokens()) {
        answer.ids.push_back(token.id());
      }
      if (event.has_finished()) answer.finished = event.finished();
    }
    (void)stream->Finish();
    return answer;
  }
  void ExpectLength(const Answer& answer) {
    EXPECT_EQ(answer.finished.reason(), v1::Finished::LENGTH)
        << answer.finished.error() << engine_.Log();
  }
  // The same tokens, logits, rows and states.
  static void ExpectEqual(const Answer& got, const Answer& want) {
    EXPECT_EQ(got.ids.size(), 3u);
    EXPECT_EQ(got.ids, want.ids);
    const v1::Digests& a = got.finished.digests();
    const v1::Digests& b = want.finished.digests();
    EXPECT_EQ(a.first_logits(), b.first_logits());
    EXPECT_EQ(a.prompt_end(), b.prompt_end());
    EXPECT_EQ(a.end(), b.end());
    EXPECT_FALSE(a.end().empty());
  }
  static void ExpectFrom(const Answer& answer, const std::string& source,
                         std::uint32_t position) {
    EXPECT_EQ(answer.finished.cache().cache_source(), source);
    EXPECT_EQ(answer.finished.cache().resumed_at_tokens(), position);
  }

  model::testing::TempFolder folder_;
  const std::string model_ = folder_.File("tiny.gguf");
  Program cached_{folder_.File("cached.log")};
  Program engine_{folder_.File("engine.log")};
  std::unique_ptr<v1::Engine::Stub> stub_;
};

Ids Next(const Ids& prompt, const Answer& answer) {
  Ids next = prompt;
  next.insert(next.end(), answer.ids.begin(), answer.ids.end());
  for (std::uint32_t i = 0; i < 20; ++i) next.push_back(i + 30);
  return next;
}

TEST_F(CudaIpcTest, AConversationComesBackFromEveryTier) {
  StartCached();
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  const Ids prompt = Prompt(300, 1);
  const Answer first = Ask("a", prompt);
  ExpectFrom(first, "none", 0);
  const Ids next = Next(prompt, first);
  const Answer second = Ask("a", next);
  ExpectFrom(second, "end", 302);
  ASSERT_TRUE(engine_.Logs({"store tier=disk", "outcome=stored"}));
  ASSERT_TRUE(engine_.Logs({"store tier=store", "outcome=stored"}));

  // The engine dies with its memory mapped: that ends with its socket.
  engine_.End(SIGKILL);
  ASSERT_TRUE(cached_.Logs({"device pool of engine", "unmapped"}));
  StartEngine();
  const Answer of_store = Ask("b", prompt);
  ExpectFrom(of_store, "store", kGrid);
  ExpectEqual(of_store, first);

  // A planned stop spills; memory goes with the cache service. The server would
  // wait for our connection.
  stub_.reset();
  EXPECT_EQ(engine_.End(SIGTERM), 0);
  EXPECT_THAT(engine_.Log(), HasSubstr("spill session=\"b\""));
  // It frees its memory after it is unmapped, and so after its socket closes.
  ASSERT_TRUE(cached_.Logs({"drained residents=1"}));
  EXPECT_LT(cached_.Log().rfind("unmapped"),
            cached_.Log().rfind("engine detached"));
  EXPECT_EQ(cached_.End(SIGTERM), 0);
  StartCached();
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  const Answer of_spill = Ask("b", Next(prompt, of_store));
  ExpectFrom(of_spill, "spill", 302);
  ExpectEqual(of_spill, second);
  EXPECT_EQ(of_spill.finished.digests().taint(), 300u);

  // With neither, the line that was written while the first request ran.
  engine_.End(SIGKILL);
  cached_.End(SIGKILL);
  StartCached();
  StartEngine();
  const Answer of_disk = Ask("c", prompt);
  ExpectFrom(of_disk, "disk", kGrid);
  ExpectEqual(of_disk, first);
}

// The lines and conversations of an engine that is refused go as copies.
TEST_F(CudaIpcTest, WhatIsNotMappedIsCopied) {
  StartCached({"--emulated-uuid=9"});
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kRefused, "another device"}));
  ASSERT_TRUE(cached_.Logs({"refused", "another device"}));
  const Ids prompt = Prompt(300, 2);
  const Answer first = Ask("a", prompt);
  ASSERT_TRUE(engine_.Logs({"store tier=disk", "outcome=stored"}));

  // The next cache service has the engine's device. It fails for good while it
  // copies: that store is lost, the next goes as a copy.
  cached_.End(SIGKILL);
  StartCached();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  cached_.Tell("cudaMemcpyAsync 700");
  const Answer second = Ask("b", Prompt(300, 3));
  ASSERT_TRUE(engine_.Logs({"outcome=refused", "reason=device"}));
  ASSERT_TRUE(engine_.Logs(
      {"arena kind=pinned reason=\"no cuda_ipc any more", "illegal memory"}));
  Ask("c", Prompt(310, 4));
  ASSERT_TRUE(engine_.Logs({"store tier=store rows=312", "outcome=stored"}));

  // What was stored as a copy is what is stored out of mapped memory.
  engine_.End(SIGKILL);
  StartEngine();
  const Answer again = Ask("a", prompt);
  ExpectFrom(again, "disk", kGrid);
  ExpectEqual(again, first);
  // The cache service's device stays lost: only a restart of it helps.
  ASSERT_TRUE(engine_.Logs({kRefused, "illegal memory"}));
}

TEST_F(CudaIpcTest, EitherMayDieInTheMiddleOfACopy) {
  StartCached();
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  const Ids prompt = Prompt(300, 5);
  cached_.Tell("hold cudaMemcpyAsync");
  auto asked = std::async(std::launch::async, [&] { return Ask("a", prompt); });
  ASSERT_TRUE(cached_.Logs({"holding cudaMemcpyAsync"}));
  cached_.End(SIGKILL);
  const Answer first = asked.get();
  ExpectLength(first);
  ASSERT_TRUE(engine_.Logs({"store tier=", "outcome=failed"}));
  const Answer goes_on = Ask("b", prompt);
  ExpectEqual(goes_on, first);

  // The engine dies while its memory is read: nothing of that is kept.
  engine_.End(SIGKILL);
  StartCached();
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  cached_.Tell("hold cudaMemcpyAsync");
  asked = std::async(std::launch::async, [&] { return Ask("a", prompt); });
  ASSERT_TRUE(cached_.Logs({"holding cudaMemcpyAsync"}));
  engine_.End(SIGKILL);
  (void)asked.get();
  ASSERT_TRUE(cached_.Logs({"engine detached"}));
  EXPECT_THAT(cached_.Log(), Not(HasSubstr("unmapped")));
  cached_.Tell("release");
  ASSERT_TRUE(cached_.Logs({"unmapped"}));
  ASSERT_TRUE(cached_.Logs({"store tier=", "reason=lease_lost", "has gone"}));
  StartEngine();
  ASSERT_TRUE(engine_.Logs({kIpc}));
  const Answer still_cold = Ask("a", prompt);
  ExpectFrom(still_cold, "none", 0);
  ExpectEqual(still_cold, first);
  ASSERT_TRUE(engine_.Logs({"store tier=disk", "outcome=stored"}));
}

}  // namespace
}  // namespace holdfast::engine
