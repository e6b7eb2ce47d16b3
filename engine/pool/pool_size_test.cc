#include "engine/pool/pool_size.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

CacheLayout Layout() {
  CacheLayout layout;
  layout.views = {{"K", 512, 1}, {"V", 512, 1}};  // 256 KiB a block
  return layout;
}
constexpr std::uint64_t kBlock = 256 * 1024;

TEST(PoolSizeTest, DefaultIsOneConversationAndTheReserve) {
  const auto plan = PlanPool(Layout(), {.tokens = {},
                                        .gigabytes = {},
                                        .model_context = 1000,
                                        .wanted_context = 0,
                                        .available_bytes = 100ull << 30});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->max_context, 1000);
  EXPECT_EQ(plan->conversation_bytes, 4 * kBlock);
  EXPECT_EQ(plan->reserve_bytes, kPrefixReserveBytes);
  EXPECT_EQ(plan->blocks, 4 + static_cast<int>(kPrefixReserveBytes / kBlock));
  EXPECT_THAT(DescribePool(*plan, Layout()), HasSubstr("1000 tokens"));
}

TEST(PoolSizeTest, LittleMemoryCutsTheReserve) {
  const auto plan = PlanPool(Layout(), {.tokens = {},
                                        .gigabytes = {},
                                        .model_context = 1024,
                                        .wanted_context = 0,
                                        .available_bytes = 24 * kBlock});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->blocks, 4 + 10);
}

TEST(PoolSizeTest, ASmallPoolCutsTheContextUnlessItWasAskedFor) {
  PoolRequest request{.tokens = 512,
                      .gigabytes = {},
                      .model_context = 4096,
                      .wanted_context = 0,
                      .available_bytes = 0};
  const auto plan = PlanPool(Layout(), request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->blocks, 2);
  EXPECT_EQ(plan->max_context, 512);
  request.wanted_context = 513;
  const auto refused = PlanPool(Layout(), request);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("--max-context 513"));
}

TEST(PoolSizeTest, GigabytesAndBounds) {
  PoolRequest request{.tokens = {},
                      .gigabytes = 0.001,
                      .model_context = 100,
                      .wanted_context = 0,
                      .available_bytes = 0};
  EXPECT_EQ(PlanPool(Layout(), request)->blocks, 3);
  request.gigabytes = 0.0001;
  EXPECT_FALSE(PlanPool(Layout(), request).ok());
  request.gigabytes = {};
  request.wanted_context = 101;
  EXPECT_FALSE(PlanPool(Layout(), request).ok());
}

}  // namespace
}  // namespace holdfast::engine
