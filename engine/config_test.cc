#include "engine/config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

Config Good() {
  Config config;
  config.model = ".";
  return config;
}

std::string Message(const Config& config) {
  return std::string(config.Validate().message());
}

TEST(ConfigTest, DefaultsAreValid) { EXPECT_EQ(Message(Good()), ""); }

TEST(ConfigTest, EveryBadValueIsNamedByItsFlag) {
  const auto expect = [](const char* flag, auto change) {
    Config config = Good();
    change(config);
    EXPECT_THAT(Message(config), HasSubstr(flag));
  };
  expect("--model", [](Config& c) { c.model = ""; });
  expect("--run-dir", [](Config& c) { c.run_dir = ""; });
  expect("--backend gpu", [](Config& c) { c.backend = "gpu"; });
  expect("--threads -1", [](Config& c) { c.threads = -1; });
  expect("--state-dtype f16", [](Config& c) { c.state_dtype = "f16"; });
  expect("--exactness row", [](Config& c) { c.exactness = "row"; });
  expect("--prefix-chunk 300", [](Config& c) { c.prefix_chunk = 300; });
  expect("--max-context 1", [](Config& c) { c.max_context = 1; });
  expect("--pool-tokens 0", [](Config& c) { c.pool_tokens = 0; });
  expect("--pool-gb -1", [](Config& c) { c.pool_gb = -1; });
  expect("give one of them", [](Config& c) {
    c.pool_gb = 1;
    c.pool_tokens = 1000;
  });
  expect("--keep-free-gb -1", [](Config& c) { c.keep_free_gb = -1; });
  expect("--cache-budget-gb -1", [](Config& c) { c.cache_budget_gb = -1; });
  expect("--parallel 0", [](Config& c) { c.parallel = 0; });
  expect("--parallel 257", [](Config& c) { c.parallel = 257; });
  expect("--resident-gb -1", [](Config& c) { c.resident_gb = -1; });
  expect("--resident-stash-gb -1", [](Config& c) { c.resident_stash_gb = -1; });
  expect("--resident-pin-gb -1", [](Config& c) { c.resident_pin_gb = -1; });
  expect("--resident-park-gb -1", [](Config& c) { c.resident_park_gb = -1; });
  expect("--resident-guest-max -1",
         [](Config& c) { c.resident_guest_max = -1; });
  expect("--spill-min-tokens -1", [](Config& c) { c.spill_min_tokens = -1; });
  expect("--staging-gb -1", [](Config& c) { c.staging_gb = -1; });
  expect("--lookup-deadline-ms 0", [](Config& c) { c.lookup_deadline_ms = 0; });
  expect("--max-queue -1", [](Config& c) { c.max_queue = -1; });
}

TEST(ConfigTest, FlagsFillTheStruct) {
  Config config;
  CLI::App app;
  AddFlags(app, config);
  EXPECT_EQ(config.exactness_level(), kernels::Exactness::kRowInvariant);
  app.parse(
      "--model m.gguf --pool-tokens 4096 --debug --state-dtype f32 "
      "--exactness grid --resident-park-gb 0.5");
  EXPECT_EQ(config.model, "m.gguf");
  EXPECT_EQ(config.pool_tokens, 4096u);
  EXPECT_FALSE(config.pool_gb.has_value());
  EXPECT_TRUE(config.debug);
  EXPECT_EQ(config.resident_bytes(), 2684354560u);
  EXPECT_EQ(config.retention().guest_max_tokens, 8192);
  EXPECT_EQ(config.retention().stash_bytes, 1u << 30);
  EXPECT_EQ(config.retention().pin_bytes, std::uint64_t{4} << 30);
  EXPECT_EQ(config.retention().park_bytes, 1u << 29);
  EXPECT_EQ(config.retention().spill_min_tokens, 16384);
  EXPECT_EQ(config.state_type(), kernels::StateType::kF32);
  EXPECT_EQ(config.exactness_level(), kernels::Exactness::kGrid);
}

}  // namespace
}  // namespace holdfast::engine
