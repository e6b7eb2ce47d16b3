// The self-test reaches every weight type, and its results are the committed
// ones on every instruction set and thread count.
#include "kernels/self_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/host/host_backend.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

// Changes only with the arithmetic revision, or when the self-test grows.
constexpr std::uint64_t kExpected = 0x2a2571a5fbd4e0b6u;

std::uint64_t SelfTestDigest(int threads) {
  auto backend = MakeHostBackend({.threads = threads});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  std::uint64_t digest = 0;
  const Status status =
      RunSelfTest(**backend, [&](std::span<const std::byte> bytes) {
        digest = testing::Digest(digest, bytes.data(), bytes.size());
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return digest;
}

TEST(SelfTest, EqualOnEveryTargetAndThreadCount) {
  testing::ForEachTarget([](const std::string& name) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(name + " " + std::to_string(threads) + " threads");
      EXPECT_EQ(SelfTestDigest(threads), kExpected);
    }
  });
}

// A NaN's bits are not defined: none may be among the results.
TEST(SelfTest, ResultsAreFiniteAndNotAllZero) {
  auto backend = MakeHostBackend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  int pieces = 0;
  const auto take = [&](std::span<const std::byte> bytes) {
    SCOPED_TRACE(pieces++);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    EXPECT_TRUE(std::any_of(values.begin(), values.end(),
                            [](float v) { return v != 0.0f; }));
    EXPECT_TRUE(std::all_of(values.begin(), values.end(),
                            [](float v) { return std::isfinite(v); }));
  };
  ASSERT_TRUE(RunSelfTest(**backend, take).ok());
  EXPECT_GT(pieces, 30);
}

TEST(SelfTest, ReachesEveryWeightType) {
  for (const WeightType type : testing::kAllWeightTypes) {
    EXPECT_NE(std::find(kSelfTestTypes.begin(), kSelfTestTypes.end(), type),
              kSelfTestTypes.end())
        << WeightTypeName(type);
  }
}

}  // namespace
}  // namespace holdfast::kernels
