// The memory of an engine on the CUDA backend, emulated: all of it is taken at
// the start, the table in the log accounts for it, and a start that finds none
// says what it was for and gives everything back.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda_device.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/startup.h"
#include "engine/testing/recording_sink.h"
#include "engine/testing/test_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::engine {
namespace {

using emulation::CurrentUse;
using emulation::FakeDevice;
using ::testing::HasSubstr;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::SomeIds;

constexpr int kVocab = 200;  // the generated models have more

// What the log got while it lives.
class LogText {
 public:
  LogText() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
    spdlog::default_logger()->sinks().push_back(sink_);
  }
  ~LogText() { std::erase(spdlog::default_logger()->sinks(), sink_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const spdlog::sink_ptr sink_;
};

// MiB of the table's row of this name; -1: there is none.
double RowMebibytes(const std::string& log, const std::string& name) {
  const std::size_t table = log.find("device memory, all of it");
  const std::size_t row = log.find("  " + name + " ", table);
  if (row == std::string::npos) return -1;
  return std::atof(log.c_str() + row + 2 + name.size());
}

// MiB of the table's rows, down to what is left.
double TableMebibytes(const std::string& log) {
  double sum = 0;
  std::istringstream lines(log.substr(log.find("device memory, all of it")));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("left of the budget") != std::string::npos) break;
    const std::size_t unit = line.find(" MiB  ");
    if (unit == std::string::npos) continue;
    const std::size_t number = line.find_last_of(' ', unit - 1);
    sum += std::atof(line.c_str() + number);
  }
  return sum;
}

class CudaMemoryTest : public ::testing::Test {
 protected:
  CudaMemoryTest() {
    const auto options = *model::testing::TinyVariant("tiny-qwen35-moe");
    EXPECT_TRUE(model::testing::WriteTinyFolder(options, path_).ok());
    SetDevice({});
  }
  static void SetDevice(FakeDevice device) {
    device.integrated = false;  // the budget is its own memory
    emulation::ResetFakeRuntime(device);
  }
  // `staging_gb`: 0 without a cache service.
  absl::StatusOr<std::unique_ptr<LoadedEngine>> Load(double pool_gb = 0.01,
                                                     double staging_gb = 0) {
    Config config;
    config.model = path_;
    config.backend = "cuda";
    config.run_dir = folder_.File("run");
    config.no_cache_service = staging_gb == 0;
    config.staging_gb = staging_gb;
    config.planner_costs = "prefill=10,store=1000,disk=1000,spill=1000";
    config.prefix_chunk = 256;
    config.pool_gb = pool_gb;
    config.max_context = 512;
    config.resident_gb = 0.002;
    config.parallel = 2;
    auto backend = ChooseBackend(config);
    if (!backend.ok()) return backend.status();
    return LoadedEngine::Load(config, *std::move(backend));
  }

  model::testing::TempFolder folder_;
  const std::string path_ = folder_.File("tiny");
};

TEST_F(CudaMemoryTest, AllOfItIsTakenAtTheStartAndInTheTable) {
  LogText log;
  constexpr double kStagingMebibytes = 48;
  auto engine = Load(0.01, kStagingMebibytes / 1024);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const emulation::FakeUse start = CurrentUse();
  // Rounded up to the device's granules, a few small things aside. Staging is
  // the host's memory, and has its row.
  const double staging = RowMebibytes(log.text(), "staging");
  EXPECT_NEAR(staging, kStagingMebibytes, 0.1) << log.text();
  EXPECT_THAT(log.text(), HasSubstr("arena kind=cuda_ipc"));
  const double taken = static_cast<double>(start.bytes) / (1 << 20);
  EXPECT_NEAR((TableMebibytes(log.text()) - staging) / taken, 1, 0.02)
      << log.text();

  std::vector<std::shared_ptr<Job>> jobs;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int n = 0; n < 3; ++n) {
    Request request = MakeRequest(SomeIds(10 + 30 * n, n, kVocab), 3);
    request.digest = false;
    request.sampling.temperature = n == 0 ? 0 : 1;
    request.sampling.presence_penalty = n == 1 ? 1 : 0;
    request.session_key = std::to_string(n);
    sinks.push_back(std::make_shared<RecordingSink>());
    jobs.push_back(std::make_shared<Job>(std::move(request), sinks.back()));
    (*engine)->scheduler().Submit(jobs.back());
  }
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->WaitForEnd());
    EXPECT_EQ(sink->ids.size(), 3u) << sink->result()->error;
  }
  EXPECT_EQ(CurrentUse().allocations, start.allocations);
  EXPECT_EQ(CurrentUse().bytes, start.bytes);
  // Logits, hidden rows and tokens came back through pinned memory.
  EXPECT_EQ(CurrentUse().pageable_copies, start.pageable_copies);
  engine->reset();
  EXPECT_EQ(CurrentUse().allocations, 0);
}

TEST_F(CudaMemoryTest, WhatPassesTheBudgetIsRefusedBeforeItIsTaken) {
  FakeDevice device;
  device.total_bytes = std::size_t{1} << 30;
  SetDevice(device);
  const auto engine = Load(5);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("--pool-gb"));
  EXPECT_EQ(CurrentUse().allocations, 0);
}

TEST_F(CudaMemoryTest, WeightsThatPassTheBudgetAreRefusedBeforeTheyAreTaken) {
  FakeDevice device;
  device.total_bytes = std::size_t{64} << 10;
  SetDevice(device);
  const auto engine = Load();
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("the weights of " + path_));
  EXPECT_EQ(CurrentUse().allocations, 0);
}

// Rows of one kind of device are not another's. And where the device shares the
// host's memory, the budget is that memory's, less what the machine needs.
TEST_F(CudaMemoryTest, TheDevicesArchitectureIsInTheFingerprint) {
  const auto fingerprint = [this](int minor, int processors) {
    FakeDevice device;
    device.minor = minor;
    device.processors = processors;
    emulation::ResetFakeRuntime(device);
    LogText log;
    const auto engine = Load(1e5);  // more than there is: the start ends here
    EXPECT_THAT(std::string(engine.status().message()),
                HasSubstr("MemAvailable less 16 GiB"));
    const std::string text = log.text();
    return text.substr(text.find(" fingerprint="), 13 + 64);
  };
  const std::string first = fingerprint(0, 48);
  EXPECT_EQ(fingerprint(0, 48), first);
  EXPECT_NE(fingerprint(1, 48), first);
  EXPECT_NE(fingerprint(0, 40), first);
}

// Whichever allocation of the start fails, the message says for what, and
// nothing stays behind.
TEST_F(CudaMemoryTest, AStartWithoutMemoryLeavesNothing) {
  for (const int after : {1, 2, 3, 5, 9, 17, 33, 65, 100, 130}) {
    SetDevice({});
    emulation::FailCall("cudaMalloc", after, cudaErrorMemoryAllocation);
    const auto engine = Load();
    ASSERT_FALSE(engine.ok()) << after;
    EXPECT_THAT(std::string(engine.status().message()),
                HasSubstr("device memory for"))
        << after;
    EXPECT_EQ(CurrentUse().allocations, 0) << after;
  }
}

}  // namespace
}  // namespace holdfast::engine

// The arena's probe starts this program again.
int main(int argc, char** argv) {
  if (const auto peer = holdfast::engine::RunCudaPeer(argc, argv)) return *peer;
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
