#include "engine/backend/choose_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ChosenBackend> Choose(const std::string& backend) {
  Config config;
  config.backend = backend;
  return ChooseBackend(config);
}

// Machines that build and test have no device that serves; where one is, the
// choice is another and these say nothing.
TEST(ChooseBackend, AutoTakesTheHostAndSaysWhy) {
  auto chosen = Choose("auto");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->backend().info().name, "host");
  EXPECT_THAT(chosen->reason, HasSubstr("no CUDA device: "));
}

TEST(ChooseBackend, TheHostTakesTheExactness) {
  for (const char* exactness : {"row_invariant", "grid"}) {
    Config config;
    config.backend = "host";
    config.exactness = exactness;
    auto chosen = ChooseBackend(config);
    ASSERT_TRUE(chosen.ok());
    EXPECT_STREQ(ExactnessName(chosen->backend().info().exactness), exactness);
  }
}

TEST(ChooseBackend, CudaIsNeverReplaced) {
  auto chosen = Choose("cuda");
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(std::string(chosen.status().message()),
              HasSubstr("--backend cuda: "));
}

TEST(ChooseBackend, ProbeIsAnObjectWithAReason) {
  const std::string json = CudaFactsJson("/proc/self/exe");
  EXPECT_THAT(json, HasSubstr("\"device\": "));
  char program[] = "holdfast-engine";
  char* arguments[] = {program, nullptr};
  EXPECT_FALSE(RunCudaPeer(1, arguments).has_value());
}

}  // namespace
}  // namespace holdfast::engine
