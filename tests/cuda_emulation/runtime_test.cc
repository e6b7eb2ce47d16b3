// Device memory, its export to a second process and errors, against a runtime
// that enforces CUDA's rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/device_facts.h"
#include "kernels/cuda/ipc/host_reads.h"
#include "kernels/cuda/ipc/imported_pool.h"
#include "kernels/cuda/ipc/ipc_memory.h"
#include "kernels/cuda/ipc/probe_memory.h"
#include "kernels/cuda/ipc/probe_peer.h"
#include "kernels/cuda/weight_memory.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::kernels::cuda {
namespace {

using emulation::CurrentUse;
using emulation::FailCall;
using emulation::FakeDevice;
using emulation::ResetFakeRuntime;
using ::testing::HasSubstr;

constexpr char kPeer[] = HOLDFAST_IPC_PEER;
constexpr std::chrono::seconds kDeadline{20};

double AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    double kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override { ResetFakeRuntime({}); }
};

TEST_F(RuntimeTest, LargeMemoryIsAloneInItsAllocation) {
  const auto small = DeviceMemory::Make(1000, "a test");
  const auto large = DeviceMemory::Make(kDeviceGranule + 1, "a test");
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(large->bytes(), 2 * kDeviceGranule);
  EXPECT_TRUE(ExportMemory(*large).ok());
  const auto refused = ExportMemory(*small);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("other allocations"));
  // A handle of a part would be opened at the base of the whole.
  EXPECT_TRUE(ExportMemory(large->data(), large->bytes()).ok());
  for (const auto& part :
       {ExportMemory(large->data() + kDeviceGranule, kDeviceGranule),
        ExportMemory(large->data(), kDeviceGranule)}) {
    ASSERT_FALSE(part.ok());
    EXPECT_THAT(part.status().message(), HasSubstr("names a whole one"));
  }
}

TEST_F(RuntimeTest, MemoryThatRanOutSaysHowMuchAndForWhat) {
  FakeDevice device;
  device.total_bytes = 1 << 20;
  ResetFakeRuntime(device);
  const auto memory = DeviceMemory::Make(3 << 20, "a pool");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.status().message(), HasSubstr("3145728"));
  EXPECT_THAT(memory.status().message(), HasSubstr("a pool"));
}

TEST_F(RuntimeTest, AllMemoryGoesBack) {
  {
    auto backend = MakeCudaBackend({});
    ASSERT_TRUE(backend.ok());
    Limits limits;
    limits.max_rows = 8;
    limits.max_cols = 64;
    limits.max_positions = 256;
    ASSERT_TRUE((*backend)->Prepare(limits).ok());
    EXPECT_GT(CurrentUse().allocations, 0);
  }
  EXPECT_EQ(CurrentUse().allocations, 0);
}

// Whatever call fails while the backend is made, the error names it and nothing
// leaks.
TEST_F(RuntimeTest, EveryFailedAllocationIsReported) {
  for (int after = 1; after <= 40; ++after) {
    ResetFakeRuntime({});
    {
      auto backend = MakeCudaBackend({});
      ASSERT_TRUE(backend.ok());
      FailCall("cudaMalloc", after, cudaErrorMemoryAllocation);
      Limits limits;
      limits.max_rows = 8;
      limits.max_cols = 64;
      limits.max_positions = 256;
      limits.gdn = {1, 1, 32, 32};
      limits.moe = {2, 1, true, 32, 32};
      const Status status = (*backend)->Prepare(limits);
      if (status.ok()) {
        EXPECT_GT(after, 8);
        break;
      }
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(status.message(), HasSubstr("device memory for"));
    }
    EXPECT_EQ(CurrentUse().allocations, 0) << after;
  }
}

TEST_F(RuntimeTest, ADeviceErrorIsReportedAndStays) {
  auto backend = MakeCudaBackend({});
  ASSERT_TRUE(backend.ok());
  const auto buffer = (*backend)->Allocate(1024);
  ASSERT_TRUE(buffer.ok());
  FailCall("cudaLaunchKernelEx", 1, cudaErrorIllegalAddress);
  (*backend)->Add((*buffer)->floats(), (*buffer)->floats(), 1, 16);
  for (int i = 0; i < 2; ++i) {
    const Status status = (*backend)->Synchronize();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("illegal memory access"));
  }
}

TEST_F(RuntimeTest, WithoutADeviceTheReasonIsTheDrivers) {
  FakeDevice device;
  device.count_error = cudaErrorInsufficientDriver;
  ResetFakeRuntime(device);
  const auto backend = MakeCudaBackend({});
  ASSERT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(),
              HasSubstr("driver version is insufficient"));
  EXPECT_THAT(DeviceFactsJson(kPeer), HasSubstr("\"device\": null"));
}

TEST_F(RuntimeTest, ProbeChoosesWhatWorks) {
  const ArenaChoice works = ChooseArena(kPeer, kDeadline);
  EXPECT_EQ(works.kind, ArenaKind::kCudaIpc) << works.reason;
  EXPECT_EQ(CurrentUse().allocations, 0);

  FakeDevice device;
  device.ipc = false;
  ResetFakeRuntime(device);
  const ArenaChoice refused = ChooseArena(kPeer, kDeadline);
  EXPECT_EQ(refused.kind, ArenaKind::kPinned);
  EXPECT_THAT(refused.reason, HasSubstr("not supported"));
}

TEST_F(RuntimeTest, APeerThatDoesNotAnswerIsGivenUp) {
  const ArenaChoice ends = ChooseArena("/bin/true", kDeadline);
  EXPECT_EQ(ends.kind, ArenaKind::kPinned);
  // A deadline that is over at once: killed, not waited for.
  const ArenaChoice late = ChooseArena(kPeer, std::chrono::milliseconds(0));
  EXPECT_EQ(late.kind, ArenaKind::kPinned);
  const ArenaChoice absent = ChooseArena("/nonexistent", kDeadline);
  EXPECT_THAT(absent.reason, HasSubstr("/nonexistent"));
}

// As one is that hangs in a driver's call. What keeps it here is a tracer that
// does not ask for its end.
TEST_F(RuntimeTest, AKilledPeerThatDoesNotEndIsLeftBehind) {
  auto peer = ProbePeer::Start(kPeer, kDeadline);
  ASSERT_TRUE(peer.ok());
  const pid_t pid = peer->pid();
  int traced[2];
  ASSERT_EQ(pipe(traced), 0);
  const pid_t tracer = fork();
  if (tracer == 0) {
    const char answer = ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0;
    if (write(traced[1], &answer, 1) == 1) pause();
    _exit(0);
  }
  ASSERT_GT(tracer, 0);
  char may = 0;
  ASSERT_EQ(read(traced[0], &may, 1), 1);
  const Status status = may ? peer->Kill() : OkStatus();
  kill(tracer, SIGKILL);
  EXPECT_EQ(waitpid(tracer, nullptr, 0), tracer);
  close(traced[0]);
  close(traced[1]);
  if (!may) GTEST_SKIP() << "no process may be traced here";
  EXPECT_THAT(status.message(), HasSubstr("was killed and did not end"));
  EXPECT_TRUE(peer->Kill().ok());  // nothing more to do
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST_F(RuntimeTest, EitherSideMayBeKilled) {
  const Status importer = KillImporter(kPeer, kDeadline);
  EXPECT_TRUE(importer.ok()) << importer.message();
  const Status exporter = KillExporter(kPeer, kDeadline);
  EXPECT_TRUE(exporter.ok()) << exporter.message();
  EXPECT_EQ(CurrentUse().opened, 0);
}

TEST_F(RuntimeTest, OwnMemoryAndOtherDevicesAreRefused) {
  const auto memory = DeviceMemory::Make(kDeviceGranule, "a test");
  ASSERT_TRUE(memory.ok());
  auto handle = ExportMemory(*memory);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(handle->exporter_start, ProcessStart(getpid()));
  EXPECT_NE(handle->exporter_start, 0u);
  EXPECT_THAT(ImportedMemory::Open(*handle).status().message(),
              HasSubstr("same id"));
  handle->exporter_pid += 1;
  handle->device.bytes[0] ^= 1;
  EXPECT_THAT(ImportedMemory::Open(*handle).status().message(),
              HasSubstr("another device"));
}

// The exporter is a process of its own.
class ImportedPoolTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    auto peer = ProbePeer::Start(kPeer, kDeadline);
    ASSERT_TRUE(peer.ok());
    peer_.emplace(*std::move(peer));
    ProbeRequest request;
    request.ask = Ask::kExport;
    const auto reply = peer_->Call(request);
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    handle_ = reply->handle;
  }

  std::optional<ProbePeer> peer_;
  IpcHandle handle_;
  std::vector<std::byte> to_ = std::vector<std::byte>(8192);
};

TEST_F(ImportedPoolTest, PartsAreThereWhenTheCallReturns) {
  auto pool = ImportedPool::Open(handle_);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  EXPECT_EQ(pool->bytes(), kProbeBytes);
  const auto pattern = Pattern(3);
  const auto* want = reinterpret_cast<const std::byte*>(pattern.data());
  const std::span<std::byte> to(to_);
  const ImportedPool::Part parts[] = {{kProbeBytes - 4096, to.first(4096)},
                                      {8192, to.subspan(4096)}};
  ASSERT_TRUE(pool->Copy(parts).ok());
  EXPECT_EQ(std::memcmp(to_.data(), want + kProbeBytes - 4096, 4096), 0);
  EXPECT_EQ(std::memcmp(to_.data() + 4096, want + 8192, 4096), 0);
  const ImportedPool::Part outside[] = {{kProbeBytes - 4095, to.first(4096)}};
  EXPECT_EQ(pool->Copy(outside).code(), StatusCode::kInvalidArgument);
  pool = Internal("closed");
  EXPECT_EQ(CurrentUse().opened, 0);
}

TEST_F(ImportedPoolTest, AnotherDeviceIsRefusedAndErrorsStay) {
  IpcHandle other = handle_;
  other.device.bytes[3] ^= 1;
  EXPECT_THAT(ImportedPool::Open(other).status().message(),
              HasSubstr("another device"));
  auto pool = ImportedPool::Open(handle_);
  ASSERT_TRUE(pool.ok());
  const ImportedPool::Part part[] = {{0, std::span(to_)}};
  FailCall("cudaMemcpyAsync", 1, cudaErrorIllegalAddress);
  EXPECT_THAT(pool->Copy(part).message(), HasSubstr("illegal memory access"));
  EXPECT_FALSE(pool->Copy(part).ok());
  EXPECT_FALSE(ImportedPool::Open(handle_).ok());
}

TEST_F(ImportedPoolTest, AFailedSynchronisationIsAFailedCopy) {
  auto pool = ImportedPool::Open(handle_);
  ASSERT_TRUE(pool.ok());
  const ImportedPool::Part part[] = {{0, std::span(to_)}};
  FailCall("cudaStreamSynchronize", 1, cudaErrorLaunchFailure);
  EXPECT_FALSE(pool->Copy(part).ok());
}

TEST_F(RuntimeTest, PinningIsTriedAndUndone) {
  EXPECT_TRUE(RegisterSharedMemory().ok());
  EXPECT_TRUE(RegisterSharedMemory().ok());  // undone: not "already registered"
  FakeDevice device;
  device.host_register = false;
  ResetFakeRuntime(device);
  EXPECT_EQ(RegisterSharedMemory().code(), StatusCode::kUnimplemented);
}

TEST_F(RuntimeTest, DescriptorsAndEventsAreTriedWhereTheDeviceHasThem) {
  const Status vmm = VmmRoundTrip(kPeer, kDeadline);
  EXPECT_TRUE(vmm.ok()) << vmm.message();
  const Status event = EventRoundTrip(kPeer, kDeadline);
  EXPECT_TRUE(event.ok()) << event.message();
  FakeDevice device;
  device.ipc_events = false;
  ResetFakeRuntime(device);
  EXPECT_EQ(EventRoundTrip(kPeer, kDeadline).code(),
            StatusCode::kUnimplemented);
}

// The second process asks for two seconds, the first has its own deadline.
TEST_F(RuntimeTest, AnEventThatNeverComesIsGivenUp) {
  FakeDevice device;
  device.events_come = false;
  ResetFakeRuntime(device);
  const Status given_up = EventRoundTrip(kPeer, kDeadline);
  ASSERT_FALSE(given_up.ok());
  EXPECT_THAT(given_up.message(),
              HasSubstr("an event of the other process did not come"));
  EXPECT_THAT(EventRoundTrip(kPeer, std::chrono::milliseconds(50)).message(),
              HasSubstr("did not answer in time"));
  // That is a line of the facts, and the arena is chosen as it would be.
  EXPECT_EQ(ChooseArena(kPeer, kDeadline).kind, ArenaKind::kCudaIpc);
}

// Every setting that tells algorithms apart, as far as the library has it.
TEST_F(RuntimeTest, TheChosenAlgorithmIsRecorded) {
  const auto stream = MakeStream();
  ASSERT_TRUE(stream.ok());
  const auto gemm = Gemm::Make(stream->get(), 16);
  ASSERT_TRUE(gemm.ok());
  EXPECT_EQ((*gemm)->Record(), "cublasLt 130100 rows 16");
  const std::vector<std::uint16_t> numbers(64);
  alignas(16) float y[20];
  ASSERT_TRUE(
      (*gemm)->Multiply(numbers.data(), 8, numbers.data(), 2, 8, 8, y, 8).ok());
  // Identity, tile, split, stages, swizzle, option, reduction, inner shape,
  // cluster shape.
  EXPECT_EQ((*gemm)->Record(),
            "cublasLt 130100 rows 16; 8x8/8@16: 21 0 1 0 0 - 0 5 3");
  // Rows that begin at other addresses may need another.
  ASSERT_TRUE(
      (*gemm)
          ->Multiply(numbers.data(), 8, numbers.data(), 2, 8, 8, y + 1, 8)
          .ok());
  EXPECT_THAT((*gemm)->Record(), HasSubstr("; 8x8/8@4: 21 0 1"));
}

TEST_F(RuntimeTest, AnyThreadExports) {
  const auto memory = PatternMemory(1);
  ASSERT_TRUE(memory.ok());
  Status status = Internal("not run");
  std::thread([&] { status = ExportMemory(*memory).status(); }).join();
  EXPECT_TRUE(status.ok()) << status.message();
}

// Not every algorithm has to take other rows than those it was chosen for.
TEST_F(RuntimeTest, RowsThatAnAlgorithmRefusesHaveTheirOwn) {
  FakeDevice device;
  device.algorithms_of_one_size = true;
  ResetFakeRuntime(device);
  const auto stream = MakeStream();
  ASSERT_TRUE(stream.ok());
  const auto gemm = Gemm::Make(stream->get(), 16);
  ASSERT_TRUE(gemm.ok());
  const std::vector<std::uint16_t> one(128, 0x3f80);
  alignas(16) float y[128];
  for (const int rows : {16, 3, 16, 3}) {
    std::fill(std::begin(y), std::end(y), 0.0f);
    const Status status =
        (*gemm)->Multiply(one.data(), 8, one.data(), rows, 8, 8, y, 8);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < 8 * rows; ++i) EXPECT_EQ(y[i], 8.0f);
  }
  EXPECT_EQ((*gemm)->choices(), 2u);
  EXPECT_THAT((*gemm)->Record(), HasSubstr("; 8x8/8@16: 21"));
  EXPECT_THAT((*gemm)->Record(), HasSubstr("; 8x8/8@16 rows 3: 21"));
}

TEST_F(RuntimeTest, FilesAreReadIntoPinnedMemory) {
  for (const HostRead& read : {CopyFromPlainMemfd(), KernelReadOfPlainMemfd(),
                               DirectReadIntoHostAlloc("/var/tmp"),
                               DirectReadIntoPinnedMemfd("/var/tmp")}) {
    EXPECT_TRUE(read.status.ok()) << read.status.message();
    EXPECT_GT(read.gb_per_s, 0);
  }
  EXPECT_THAT(DirectReadIntoHostAlloc("/nonexistent").status.message(),
              HasSubstr("/nonexistent"));
  FakeDevice device;
  device.host_register = false;
  device.pageable_access = false;
  ResetFakeRuntime(device);
  EXPECT_EQ(DirectReadIntoPinnedMemfd("/var/tmp").status.code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(KernelReadOfPlainMemfd().status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(CurrentUse().allocations, 0);
}

TEST_F(RuntimeTest, FactsNameTheDevice) {
  const std::string facts = DeviceFactsJson(kPeer);
  EXPECT_THAT(facts, HasSubstr("\"device\": \"emulated device\""));
  EXPECT_THAT(facts, HasSubstr("\"ipc_round_trip\": \"ok\""));
  EXPECT_THAT(facts, HasSubstr("\"integrated\": 1"));
  EXPECT_THAT(facts, HasSubstr("\"vmm_fd_round_trip\": \"ok\""));
  EXPECT_THAT(facts, HasSubstr("\"ipc_event_round_trip\": \"ok\""));
  EXPECT_THAT(facts, HasSubstr("\"closed\": "));
  EXPECT_THAT(facts, HasSubstr("\"host_alloc\": "));
  EXPECT_THAT(facts, HasSubstr("\"kernel\": "));
}

TEST_F(RuntimeTest, BudgetOfASharedMemoryIsTheKernels) {
  const auto shared = DeviceBudget();
  ASSERT_TRUE(shared.ok());
  EXPECT_THAT(shared->how, HasSubstr("MemAvailable less 16 GiB"));
  EXPECT_TRUE(shared->integrated);
  // Other programs take and give memory meanwhile.
  constexpr double kGiB = 1 << 30;
  const double left = std::max(0.0, AvailableBytes() - 16 * kGiB);
  EXPECT_NEAR(static_cast<double>(shared->bytes), left, 4 * kGiB);
  FakeDevice device;
  device.integrated = false;
  ResetFakeRuntime(device);
  const auto own = DeviceBudget();
  ASSERT_TRUE(own.ok());
  // Other processes need contexts, also when everything else is taken.
  EXPECT_EQ(own->bytes, device.total_bytes - (std::size_t{512} << 20));
  EXPECT_THAT(own->how, HasSubstr("less 512 MiB"));
  EXPECT_FALSE(own->integrated);
}

TEST_F(RuntimeTest, ADeviceThatThereIsNoCodeForIsRefused) {
  FakeDevice device;
  device.has_code = false;
  device.major = 8;
  device.minor = 9;
  ResetFakeRuntime(device);
  const auto backend = MakeCudaBackend({});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(backend.status().message(),
              HasSubstr("emulated device (sm_89) cannot run this build"));
  EXPECT_THAT(backend.status().message(), HasSubstr("no kernel image"));
  EXPECT_EQ(CurrentUse().allocations, 0);
}

// Experts' matrices a little over a granule would take two of them each.
TEST_F(RuntimeTest, MatricesShareMemory) {
  WeightPieces pieces;
  std::vector<WeightMemory> parts;
  constexpr std::size_t kPart = (std::size_t{2} << 20) + (160 << 10);
  constexpr std::size_t kParts = 160;
  for (std::size_t i = 0; i < kParts; ++i) {
    auto part = pieces.Take(kPart, "an expert");
    ASSERT_TRUE(part.ok());
    EXPECT_GE(part->bytes, kPart);
    EXPECT_EQ(part->data[0], std::byte{0});
    EXPECT_EQ(part->data[kPart - 1], std::byte{0});
    std::memset(part->data, static_cast<int>(i), part->bytes);
    parts.push_back(*std::move(part));
  }
  EXPECT_LT(CurrentUse().bytes - pieces.unfilled_bytes(),
            kParts * kPart * 6 / 5);
  for (std::size_t i = 0; i < kParts; ++i) {
    EXPECT_EQ(parts[i].data[0], static_cast<std::byte>(i));
    EXPECT_EQ(parts[i].data[kPart - 1], static_cast<std::byte>(i));
  }
  // What one has alone, and what others had, goes with them.
  const auto large = pieces.Take(std::size_t{64} << 20, "a head");
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->bytes, std::size_t{64} << 20);
  parts.clear();
  EXPECT_LE(CurrentUse().allocations, 2);
}

}  // namespace
}  // namespace holdfast::kernels::cuda
