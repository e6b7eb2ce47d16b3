// The fake runtime refuses what a real one refuses: one rule a test, on its own
// calls.
#include "tests/cuda_emulation/fake_runtime.h"

#include <gtest/gtest.h>

#include <optional>

#include "cuda_runtime.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/ipc_memory.h"
#include "kernels/cuda/ipc/probe_memory.h"
#include "kernels/cuda/ipc/probe_peer.h"

namespace holdfast::emulation {
namespace {

using kernels::cuda::Ask;
using kernels::cuda::DeviceMemory;
using kernels::cuda::ExpectSum;
using kernels::cuda::kDeviceGranule;
using kernels::cuda::PatternMemory;
using kernels::cuda::ProbePeer;
using kernels::cuda::ProbeReply;
using kernels::cuda::ProbeRequest;

constexpr char kPeer[] = HOLDFAST_IPC_PEER;
constexpr std::chrono::seconds kDeadline{20};

// With a second process, which maps and exports.
class FakeRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ResetFakeRuntime({});
    auto peer = ProbePeer::Start(kPeer, kDeadline);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    peer_.emplace(*std::move(peer));
  }
  ProbeReply Call(Ask ask, const cudaIpcMemHandle_t& handle = {}) {
    ProbeRequest request;
    request.ask = ask;
    request.handle.memory = handle;
    request.handle.bytes = kDeviceGranule;
    cudaDeviceProp properties;
    EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    request.handle.device = properties.uuid;
    const auto reply = peer_->Call(request);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    return reply.ok() ? *reply : ProbeReply{};
  }
  static cudaError_t Open(const cudaIpcMemHandle_t& handle, void** pointer) {
    return cudaIpcOpenMemHandle(pointer, handle,
                                cudaIpcMemLazyEnablePeerAccess);
  }
  static std::size_t FreeBytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }

  std::optional<ProbePeer> peer_;
};

TEST_F(FakeRuntimeTest, ASecondOpenIsOneMoreReferenceToTheSame) {
  const ProbeReply exported = Call(Ask::kExport);
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(Open(exported.handle.memory, &first), cudaSuccess);
  ASSERT_EQ(Open(exported.handle.memory, &second), cudaSuccess);
  EXPECT_EQ(first, second);
  EXPECT_EQ(CurrentUse().opened, 1);
  EXPECT_EQ(cudaIpcCloseMemHandle(first), cudaSuccess);
  EXPECT_EQ(CurrentUse().opened, 1);
  std::uint64_t word = 0;  // still mapped
  EXPECT_EQ(cudaMemcpy(&word, second, 8, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(word, kernels::cuda::Pattern(3)[0]);
  EXPECT_EQ(cudaIpcCloseMemHandle(second), cudaSuccess);
  EXPECT_EQ(CurrentUse().opened, 0);
  EXPECT_EQ(cudaIpcCloseMemHandle(second), cudaErrorInvalidValue);
}

TEST_F(FakeRuntimeTest, TheExporterCannotOpenItsOwn) {
  const auto memory = DeviceMemory::Make(kDeviceGranule, "a test");
  ASSERT_TRUE(memory.ok());
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory->data()), cudaSuccess);
  void* pointer = nullptr;
  EXPECT_EQ(Open(handle, &pointer), cudaErrorDeviceUninitialized);
  EXPECT_EQ(CurrentUse().opened, 0);
}

TEST_F(FakeRuntimeTest, AnotherDevicesMemoryIsRefused) {
  const ProbeReply exported = Call(Ask::kExport);
  FakeDevice other;
  other.uuid_byte = 9;
  ResetFakeRuntime(other);
  void* pointer = nullptr;
  EXPECT_EQ(Open(exported.handle.memory, &pointer), cudaErrorInvalidDevice);
  EXPECT_EQ(Open({}, &pointer), cudaErrorInvalidValue);  // no handle at all
}

// A handle of an address inside is opened at the allocation's base.
TEST_F(FakeRuntimeTest, AHandleNamesTheWholeAllocation) {
  const auto memory = PatternMemory(6);
  ASSERT_TRUE(memory.ok());
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory->data() + 4096), cudaSuccess);
  EXPECT_TRUE(
      ExpectSum(Call(Ask::kImport, handle).sum, 6, "the second process").ok());
  char on_the_host = 0;
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, &on_the_host), cudaErrorInvalidValue);
}

TEST_F(FakeRuntimeTest, MemoryFreedWhileOpenStaysChargedAndIsGarbage) {
  const std::size_t before = FreeBytes();
  auto memory = PatternMemory(6);
  ASSERT_TRUE(memory.ok());
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory->data()), cudaSuccess);
  const ProbeReply mapped = Call(Ask::kImport, handle);
  EXPECT_TRUE(ExpectSum(mapped.sum, 6, "the second process").ok());

  *memory = DeviceMemory();
  EXPECT_EQ(CurrentUse().allocations, 0);
  EXPECT_EQ(FreeBytes(), before - kDeviceGranule);
  EXPECT_NE(Call(Ask::kSum).sum, mapped.sum);
  // Until the other process lets go, and be it by its death.
  ASSERT_TRUE(peer_->Kill().ok());
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(FakeRuntimeTest, FreedMemoryIsAnIllegalAddressFromThenOn) {
  auto memory = DeviceMemory::Make(kDeviceGranule, "a test");
  ASSERT_TRUE(memory.ok());
  std::byte* const gone = memory->data() + 512;
  *memory = DeviceMemory();
  std::uint64_t word = 0;
  EXPECT_EQ(cudaMemcpy(&word, gone, 8, cudaMemcpyDeviceToHost),
            cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST_F(FakeRuntimeTest, AnIllegalAddressIsTheAnswerOfEveryLaterCall) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 1024), cudaSuccess);
  std::uint64_t word = 0;
  FailCall("cudaMemcpy", 1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemcpy(&word, pointer, 8, cudaMemcpyDeviceToHost),
            cudaErrorIllegalAddress);
  int device = 0;
  void* more = nullptr;
  cudaIpcMemHandle_t handle;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cudaMalloc(&more, 1024), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaFree(pointer), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaIpcGetMemHandle(&handle, pointer), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetDevice(&device), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  }
}

TEST_F(FakeRuntimeTest, AnotherErrorIsGoneOnceAskedFor) {
  void* pointer = nullptr;
  FailCall("cudaMalloc", 1, cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&pointer, 1024), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&pointer, 1024), cudaSuccess);
}

__global__ void Nothing() {}

TEST_F(FakeRuntimeTest, LaunchesBeyondTheDeviceAreRefused) {
  const auto launch = [](dim3 grid, int threads, std::size_t shared) {
    cudaLaunchConfig_t config;
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelEx(&config, Nothing);
  };
  EXPECT_EQ(launch(dim3(1), 1024, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), 1056, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(0), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), 32, (48 << 10) + 1), cudaErrorInvalidValue);
  constexpr auto kAttribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, kAttribute, 64 << 10), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), 32, 64 << 10), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, kAttribute, 100 << 10),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace holdfast::emulation
