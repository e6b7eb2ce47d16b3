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

TEST(PoolSizeTest, DefaultIsOneConversationASeatAndTheBudgets) {
  const auto plan = PlanPool(Layout(), {.tokens = {},
                                        .gigabytes = {},
                                        .model_context = 1000,
                                        .wanted_context = 0,
                                        .seats = 3,
                                        .pin_bytes = 20 * kBlock,
                                        .park_bytes = 30 * kBlock,
                                        .stash_bytes = 5 * kBlock,
                                        .available_bytes = 100ull << 30});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->max_context, 1000);
  EXPECT_EQ(plan->conversation_bytes, 4 * kBlock);
  EXPECT_EQ(plan->blocks, 3 * 4 + 55);
  EXPECT_EQ(plan->stash_bytes, 5 * kBlock);
  EXPECT_EQ(plan->pin_bytes, 20 * kBlock);
  EXPECT_EQ(plan->park_bytes, 30 * kBlock);
  const std::string table = DescribePool(*plan, Layout());
  EXPECT_THAT(table, HasSubstr("1024 tokens, the longest that fits"));
  EXPECT_THAT(table, HasSubstr("3 seats at their longest need 0.18"));
}

TEST(PoolSizeTest, LittleMemoryCutsTheBudgets) {
  const auto plan = PlanPool(Layout(), {.tokens = {},
                                        .gigabytes = {},
                                        .model_context = 1024,
                                        .wanted_context = 0,
                                        .pin_bytes = 8 * kBlock,
                                        .park_bytes = 8 * kBlock,
                                        .stash_bytes = kBlock,
                                        .available_bytes = 24 * kBlock});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->blocks, 4 + 10);
  EXPECT_EQ(plan->stash_bytes, kBlock);
  EXPECT_EQ(plan->pin_bytes, 8 * kBlock);
  EXPECT_EQ(plan->park_bytes, kBlock);
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
