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
  expect("--max-context 1", [](Config& c) { c.max_context = 1; });
  expect("--pool-tokens 0", [](Config& c) { c.pool_tokens = 0; });
  expect("--pool-gb -1", [](Config& c) { c.pool_gb = -1; });
  expect("give one of them", [](Config& c) {
    c.pool_gb = 1;
    c.pool_tokens = 1000;
  });
  expect("--resident-gb -1", [](Config& c) { c.resident_gb = -1; });
  expect("--max-queue -1", [](Config& c) { c.max_queue = -1; });
}

TEST(ConfigTest, FlagsFillTheStruct) {
  Config config;
  CLI::App app;
  AddFlags(app, config);
  EXPECT_EQ(config.exactness_level(), kernels::Exactness::kRowInvariant);
  app.parse(
      "--model m.gguf --pool-tokens 4096 --debug --state-dtype f32 "
      "--exactness grid");
  EXPECT_EQ(config.model, "m.gguf");
  EXPECT_EQ(config.pool_tokens, 4096u);
  EXPECT_FALSE(config.pool_gb.has_value());
  EXPECT_TRUE(config.debug);
  EXPECT_EQ(config.resident_bytes(), 2684354560u);
  EXPECT_EQ(config.state_type(), kernels::StateType::kF32);
  EXPECT_EQ(config.exactness_level(), kernels::Exactness::kGrid);
}

}  // namespace
}  // namespace holdfast::engine
