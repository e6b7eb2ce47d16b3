// Pools on devices, with a mapper that maps ordinary memory and obeys the test.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/device/device_pools.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kBlocks = 8;
constexpr seconds kLong{30};

// What the test makes of the device.
struct FakeMemory {
  std::vector<std::byte> bytes = std::vector<std::byte>(16 * kBlock);
  absl::Status map_status;
  absl::Status pin_status;
  absl::Status copy_status;  // of the next copy
  std::function<void()> during_copy;
  int mapped = 0;
  int pinned = 0;
};

class FakeMapper final : public DeviceMapper {
 public:
  explicit FakeMapper(FakeMemory& memory) : memory_(memory) {}

  absl::StatusOr<std::unique_ptr<MappedDeviceMemory>> Map(
      const DeviceMemoryHandle&) override {
    if (!memory_.map_status.ok()) return memory_.map_status;
    return std::unique_ptr<MappedDeviceMemory>(new Mapped(memory_));
  }
  absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
      std::span<std::byte>) override {
    if (!memory_.pin_status.ok()) return memory_.pin_status;
    return std::unique_ptr<PinnedHostMemory>(new Pinned(memory_));
  }

 private:
  class Mapped final : public MappedDeviceMemory {
   public:
    explicit Mapped(FakeMemory& memory) : memory_(memory) { ++memory_.mapped; }
    ~Mapped() override { --memory_.mapped; }
    absl::Status Copy(std::span<const Part> parts) override {
      if (memory_.during_copy) std::exchange(memory_.during_copy, nullptr)();
      for (const Part& part : parts) {
        std::memcpy(part.to.data(), memory_.bytes.data() + part.offset,
                    part.to.size());
      }
      return std::exchange(memory_.copy_status, absl::OkStatus());
    }

   private:
    FakeMemory& memory_;
  };
  class Pinned final : public PinnedHostMemory {
   public:
    explicit Pinned(FakeMemory& memory) : memory_(memory) { ++memory_.pinned; }
    ~Pinned() override { --memory_.pinned; }

   private:
    FakeMemory& memory_;
  };

  FakeMemory& memory_;
};

// A process that does nothing until it is killed, or this one ends.
pid_t Sleeper() {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  return child;
}

std::uint64_t StartOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 19; ++i) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    engine_ = Sleeper();
    for (std::size_t i = 0; i < memory_.bytes.size(); ++i) {
      memory_.bytes[i] = static_cast<std::byte>(i / kBlock * 37 + i % 251);
    }
    options_.pool.memory.bytes = memory_.bytes.size();
    options_.pool.memory.exporter_start = StartOf(engine_);
    options_.pool.block_count = kBlocks;
    options_.pool.check_offset = kBlocks * kBlock;
    options_.block_bytes = kBlock;
    options_.piece_blocks = 4;
    options_.engine_pid = static_cast<std::uint32_t>(engine_);
  }
  ~DeviceTest() override { KillEngine(); }
  void KillEngine() {
    if (engine_ <= 0) return;
    kill(engine_, SIGKILL);
    (void)waitpid(std::exchange(engine_, 0), nullptr, 0);
  }
  static Deadline Later() { return SteadyClock().Now() + kLong; }
  std::shared_ptr<DevicePool> Mapped(DevicePools& pools) {
    pools.Begin(7);
    const auto check = pools.Map(7, options_);
    EXPECT_TRUE(check.ok()) << check.status();
    return pools.Get(7);
  }

  pid_t engine_ = 0;
  FakeMemory memory_;
  DevicePool::Options options_;
};

TEST_F(DeviceTest, ReadsTheCheckAndTheBlocksAsked) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  const auto check = pools.Map(7, options_);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(std::memcmp(check->data(), memory_.bytes.data() + kBlocks * kBlock,
                        check->size()),
            0);
  EXPECT_EQ(memory_.pinned, 2);
  EXPECT_EQ(pools.Get(8), nullptr);
  const auto pool = pools.Get(7);
  ASSERT_NE(pool, nullptr);
  const std::vector<std::uint32_t> asked = {5, 0, 7};
  const auto copies = pool->Copy(asked, Later());
  ASSERT_TRUE(copies.ok()) << copies.status();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(std::memcmp(copies->blocks[i],
                          memory_.bytes.data() + asked[i] * kBlock, kBlock),
              0);
  }
  const std::vector<std::uint32_t> outside = {kBlocks};
  EXPECT_TRUE(absl::IsInvalidArgument(pool->Copy(outside, Later()).status()));
  const std::vector<std::uint32_t> many(5);
  EXPECT_TRUE(absl::IsInvalidArgument(pool->Copy(many, Later()).status()));
}

TEST_F(DeviceTest, WhatDoesNotFitIsRefused) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  const DevicePool::Options good = options_;
  const auto refused = [&] {
    const auto status = pools.Map(7, options_).status();
    options_ = good;
    return !status.ok() && pools.Get(7) == nullptr && memory_.mapped == 0;
  };
  options_.pool.block_count = std::uint64_t{1} << 60;
  EXPECT_TRUE(refused());
  options_.pool.check_offset = kBlocks * kBlock - 1;  // in the last block
  EXPECT_TRUE(refused());
  options_.pool.check_offset = options_.pool.memory.bytes - 31;
  EXPECT_TRUE(refused());
  options_.piece_blocks = std::uint64_t{1} << 40;
  EXPECT_TRUE(refused());
  options_.pool.memory.exporter_start += 1;  // another process of this id
  EXPECT_TRUE(refused());
  EXPECT_TRUE(pools.Map(7, options_).ok());
}

TEST_F(DeviceTest, TheReasonIsTold) {
  DevicePools absent(nullptr);
  EXPECT_THAT(absent.Map(7, options_).status().message(),
              HasSubstr("built without CUDA"));
  memory_.map_status = absl::UnavailableError("another device");
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  EXPECT_EQ(pools.Map(7, options_).status().message(), "another device");
  memory_.map_status = absl::OkStatus();
  // Without pinned memory copies are slow, not wrong.
  memory_.pin_status = absl::UnavailableError("not supported");
  const auto pool = Mapped(pools);
  const std::vector<std::uint32_t> asked = {1};
  EXPECT_TRUE(pool->Copy(asked, Later()).ok());
}

TEST_F(DeviceTest, StagingIsBoundedAndComesBack) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  const auto pool = Mapped(pools);
  const std::vector<std::uint32_t> asked = {1};
  auto first = pool->Copy(asked, Later());
  const auto second = pool->Copy(asked, Later());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pool->Copy(asked, SteadyClock().Now()).status()));
  EXPECT_TRUE(pool->failure().empty());
  first = absl::CancelledError("given back");
  EXPECT_TRUE(pool->Copy(asked, Later()).ok());
}

TEST_F(DeviceTest, NothingIsBelievedOfAnEngineThatDied) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  const auto pool = Mapped(pools);
  const std::vector<std::uint32_t> asked = {1};
  // Its death may make the copy fail, or not: neither is the device's fault.
  memory_.during_copy = [this] { KillEngine(); };
  memory_.copy_status = absl::UnavailableError("illegal address");
  EXPECT_TRUE(absl::IsAborted(pool->Copy(asked, Later()).status()));
  EXPECT_TRUE(absl::IsAborted(pool->Copy(asked, Later()).status()));
  EXPECT_TRUE(pool->failure().empty());
}

TEST_F(DeviceTest, TheEndOfAnAttachUnmaps) {
  auto pools =
      std::make_unique<DevicePools>(std::make_unique<FakeMapper>(memory_));
  const auto pool = Mapped(*pools);
  const std::vector<std::uint32_t> asked = {1};
  const auto held = pool->Copy(asked, Later());
  pools->Drop(6);
  EXPECT_NE(pools->Get(7), nullptr);
  pools->Drop(7);
  EXPECT_EQ(pools->Get(7), nullptr);
  // A store that still holds it reads no more; what it has stays its.
  EXPECT_TRUE(absl::IsAborted(pool->Copy(asked, Later()).status()));
  EXPECT_EQ(std::memcmp(held->blocks[0], memory_.bytes.data() + kBlock, kBlock),
            0);
  pools.reset();  // waits for the thread
  EXPECT_EQ(memory_.mapped, 0);
  EXPECT_EQ(memory_.pinned, 0);
}

// An engine that stops as planned frees its memory only then.
TEST_F(DeviceTest, UnmappingIsWaitedFor) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  ASSERT_TRUE(pools.Map(7, options_).ok());
  pools.Unmap(6);
  EXPECT_NE(pools.Get(7), nullptr);
  pools.Unmap(7);
  EXPECT_EQ(memory_.mapped, 0);
  EXPECT_EQ(memory_.pinned, 0);
  // And it may be offered again.
  EXPECT_TRUE(pools.Map(7, options_).ok());
}

// The call of an engine that has gone goes on after another one attached.
TEST_F(DeviceTest, AStaleCallTakesNothingFromALaterAttach) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  pools.Drop(7);
  pools.Begin(8);
  ASSERT_TRUE(pools.Map(8, options_).ok());
  EXPECT_TRUE(absl::IsAborted(pools.Map(7, options_).status()));
  EXPECT_EQ(pools.Get(7), nullptr);
  const auto pool = pools.Get(8);
  ASSERT_NE(pool, nullptr);
  const std::vector<std::uint32_t> asked = {1};
  EXPECT_TRUE(pool->Copy(asked, Later()).ok());
  EXPECT_EQ(memory_.mapped, 1);
}

// Or it is in the middle of mapping.
TEST_F(DeviceTest, WhatIsMappedTooLateIsUnmapped) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  pools.Begin(7);
  memory_.during_copy = [&pools] { pools.Begin(8); };
  EXPECT_TRUE(absl::IsAborted(pools.Map(7, options_).status()));
  ASSERT_TRUE(pools.Map(8, options_).ok());
  EXPECT_EQ(memory_.mapped, 1);
}

TEST_F(DeviceTest, ADeviceThatFailedIsNotAskedAgain) {
  DevicePools pools(std::make_unique<FakeMapper>(memory_));
  const auto pool = Mapped(pools);
  const std::vector<std::uint32_t> asked = {1};
  memory_.copy_status = absl::UnavailableError("illegal address");
  EXPECT_TRUE(absl::IsUnavailable(pool->Copy(asked, Later()).status()));
  EXPECT_THAT(pool->failure(), HasSubstr("illegal address"));
  EXPECT_TRUE(absl::IsUnavailable(pool->Copy(asked, Later()).status()));
}

TEST_F(DeviceTest, ACallThatHangsIsGivenUp) {
  std::promise<void> release;
  {
    DevicePools pools(std::make_unique<FakeMapper>(memory_));
    options_.copy_deadline = [](std::uint64_t) { return milliseconds(20); };
    const auto pool = Mapped(pools);
    const std::vector<std::uint32_t> asked = {1};
    memory_.during_copy = [&release] { release.get_future().wait(); };
    EXPECT_TRUE(absl::IsUnavailable(pool->Copy(asked, Later()).status()));
    EXPECT_THAT(pool->failure(), HasSubstr("did not end within"));
    release.set_value();
  }
  EXPECT_EQ(memory_.mapped, 0);
}

TEST(ProcessWatch, SeesTheEndBeforeItIsReaped) {
  const pid_t child = Sleeper();
  const auto watch =
      ProcessWatch::Open(static_cast<std::uint32_t>(child), StartOf(child));
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_TRUE(watch->HasMemory());
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT),
            0);
  EXPECT_FALSE(watch->HasMemory());  // a zombie
  (void)waitpid(child, nullptr, 0);
  EXPECT_FALSE(watch->HasMemory());
}

}  // namespace
}  // namespace holdfast::cachesvc
