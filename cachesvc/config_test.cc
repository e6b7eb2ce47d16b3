#include "cachesvc/config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/daemon.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::HasSubstr;

std::string Described(std::vector<const char*> args) {
  args.insert(args.begin(), "holdfast-cached");
  Config config;
  CLI::App app;
  AddFlags(app, config);
  app.parse(static_cast<int>(args.size()), args.data());
  return DescribeConfig(app);
}

TEST(ConfigTest, WhatIsPrintedIsWhatHolds) {
  EXPECT_THAT(Described({}), HasSubstr("disk-cache=true"));
  EXPECT_THAT(Described({}), HasSubstr("session-spill=true"));
  EXPECT_THAT(Described({"--no-disk-cache"}), HasSubstr("disk-cache=false"));
  EXPECT_THAT(Described({"--no-session-spill"}),
              HasSubstr("session-spill=false"));
}

}  // namespace
}  // namespace holdfast::cachesvc
