// The device's content sums have the values of shared/content_sum.
#include "shared/content_sum/content_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/content_sum.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "shared/cache_layout.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast {
namespace {

using Bytes = std::vector<std::byte>;

class ContentSumTest : public ::testing::Test {
 protected:
  void SetUp() override { emulation::ResetFakeRuntime({}); }
  Bytes Random(std::size_t count) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }

  std::mt19937 random_{11};
};

TEST_F(ContentSumTest, OfViewsOfRandomBlocks) {
  auto backend = kernels::MakeCudaBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  kernels::Limits limits;
  limits.max_rows = 16;
  ASSERT_TRUE((*backend)->Prepare(limits).ok());
  for (int round = 0; round < 12; ++round) {
    CacheLayout layout;
    const int views = 1 + static_cast<int>(random_() % 4);
    for (int v = 0; v < views; ++v) {
      layout.views.push_back(
          {"view" + std::to_string(v), 2 + 2 * (random_() % 40), 1});
    }
    std::vector<Bytes> hosts;
    std::vector<std::unique_ptr<kernels::Buffer>> buffers;
    std::vector<const std::byte*> on_host;
    std::vector<const std::byte*> on_device;
    for (int b = 0; b < 1 + round % 4; ++b) {
      hosts.push_back(Random(layout.BlockBytes()));
      auto buffer = (*backend)->Allocate(layout.BlockBytes());
      ASSERT_TRUE(buffer.ok());
      auto* const to = static_cast<std::byte*>((*buffer)->data());
      ASSERT_TRUE(
          (*backend)->Write(hosts.back().data(), layout.BlockBytes(), to).ok());
      on_host.push_back(hosts.back().data());
      on_device.push_back(to);
      buffers.push_back(*std::move(buffer));
    }
    const auto want = ViewSums(layout, on_host);
    const auto got = (*backend)->ViewSums(layout, on_device);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->size(), want.size());
    static_assert(sizeof((*got)[0]) == sizeof(want[0]));
    EXPECT_EQ(
        std::memcmp(got->data(), want.data(), want.size() * sizeof(want[0])), 0)
        << "round " << round;
  }
}

// Sizes around what a thread, a warp and a block of the kernel takes.
TEST_F(ContentSumTest, OfPartsOfAnyLength) {
  constexpr std::size_t kMost = 3 * 256 * 16 * 8;
  constexpr std::size_t kOffset = 24;
  const Bytes host = Random(kOffset + kMost);
  const auto memory = kernels::cuda::DeviceMemory::Make(host.size(), "a block");
  const auto sums = kernels::cuda::DeviceMemory::Make(16, "sums");
  const auto table = kernels::cuda::DeviceMemory::Make(8, "a table");
  ASSERT_TRUE(memory.ok() && sums.ok() && table.ok());
  std::memcpy(memory->data(), host.data(), host.size());
  *table->as<const std::byte*>() = memory->data();
  for (const std::size_t words :
       {1, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 8191, 12288}) {
    const std::size_t bytes = words * 8;
    std::memset(sums->data(), 0, 16);
    ASSERT_EQ(kernels::cuda::AddContentSums(
                  nullptr, table->as<const std::byte*>(), 1, kOffset, bytes,
                  sums->as<unsigned long long>()),
              cudaSuccess);
    const ContentSum want =
        ContentSumOf(std::span(host).subspan(kOffset, bytes));
    EXPECT_EQ(std::memcmp(sums->data(), &want, sizeof(want)), 0) << words;
  }
}

}  // namespace
}  // namespace holdfast
