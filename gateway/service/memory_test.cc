// What requests leave in memory.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>

#include "gateway/service/testing/gateway_fixture.h"
#include "gtest/gtest.h"

namespace holdfast::gateway::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = true;
#else
constexpr bool kOwnAllocator = false;
#endif

std::size_t ResidentBytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class MemoryTest : public GatewayTest {};

// Over a million small pieces of JSON, and a few that stay.
TEST_F(MemoryTest, WhatALargeRequestTookGoesBack) {
  if (kOwnAllocator) GTEST_SKIP() << "the sanitizer keeps what is freed";
  StartAll();
  std::string body = R"({"messages":[{"role":"user","content":"x"}],"a":[)";
  for (int i = 0; i < 1200000; ++i) body += R"({"b":[0]},)";
  body += "0]}";
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 200);
  const std::size_t before = ResidentBytes();
  EXPECT_EQ(Post("/v1/chat/completions", body).status, 200);
  const std::size_t enough = before + (std::size_t{64} << 20);
  for (int i = 0; i < 2000 && ResidentBytes() > enough; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LE(ResidentBytes() >> 20, enough >> 20);
}

}  // namespace
}  // namespace holdfast::gateway::testing
