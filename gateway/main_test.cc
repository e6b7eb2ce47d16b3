// The program itself: flags, exit codes, the port file, signals.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gateway/http/testing/raw_client.h"
#include "gtest/gtest.h"

namespace holdfast::gateway {
namespace {

using http::testing::RawClient;

constexpr int kLooks = 2000;
constexpr std::chrono::milliseconds kLook{10};

class MainTest : public ::testing::Test {
 protected:
  MainTest() {
    std::string pattern = ::testing::TempDir() + "gwmainXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~MainTest() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  // In folder_, unless the flags name another --run-dir.
  pid_t Start(std::vector<std::string> flags) {
    if (std::find(flags.begin(), flags.end(), "--run-dir") == flags.end())
      flags.insert(flags.begin(), {"--run-dir", folder_});
    flags.insert(flags.begin(), HOLDFAST_GATEWAY_PROGRAM);
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                     (folder_ + "/log").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = -1;
    EXPECT_EQ(
        posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    children_.push_back(child);
    return child;
  }

  // The exit code; -1 when it did not end by itself within 20 s.
  int Wait(pid_t child) {
    for (int i = 0; i < kLooks; ++i) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) {
        std::erase(children_, child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
      }
      std::this_thread::sleep_for(kLook);
    }
    return -1;
  }

  std::optional<std::uint16_t> Port() const {
    for (int i = 0; i < kLooks; ++i) {
      std::ifstream file(folder_ + "/gateway.port");
      int port = 0;
      if (file >> port) return static_cast<std::uint16_t>(port);
      std::this_thread::sleep_for(kLook);
    }
    return std::nullopt;
  }

  std::string Log() const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/log").rdbuf();
    return text.str();
  }

  std::string folder_;
  std::vector<pid_t> children_;
};

TEST_F(MainTest, ServesUntilItIsTold) {
  const pid_t child = Start({"--port", "0", "--api-key", "not-in-the-log"});
  const auto port = Port();
  ASSERT_TRUE(port.has_value()) << Log();
  RawClient client(*port);
  client.SendRequest("GET", "/health");
  EXPECT_EQ(client.ReadResponse().status, 503);  // no engine
  kill(child, SIGTERM);
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Wait(child), 0) << Log();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/gateway.port"));
  EXPECT_NE(Log().find("config max-connections=1024"), std::string::npos)
      << Log();
  EXPECT_EQ(Log().find("not-in-the-log"), std::string::npos) << Log();
}

TEST_F(MainTest, BadConfigurations) {
  const std::vector<std::vector<std::string>> bad = {
      {"--no-such-flag"},
      {"--port", "70000"},
      {"--port", "x"},
      {"--host", "nowhere"},
      {"--max-connections", "0"},
      {"--log-level", "loud"},
      {"--api-key-file", "/none"},
      {"--debug-answers", "/none"},
      {"--run-dir", "/dev/null"},
      {"--run-dir", folder_ + "/" + std::string(100, 'x')},
  };
  for (const auto& flags : bad) {
    EXPECT_EQ(Wait(Start(flags)), 78) << flags[0];
    const std::string named = flags[0] == "--run-dir" ? flags[1] : flags[0];
    EXPECT_NE(Log().find(named), std::string::npos)
        << flags[0] << ": " << Log();
  }
  EXPECT_EQ(Wait(Start({"--api-key-file", "/"})), 78);
  EXPECT_NE(Log().find("--api-key-file /: cannot be read"), std::string::npos)
      << Log();
}

TEST_F(MainTest, ANameInTheFileThatIsNoOptionsIsBad) {
  const std::string file = folder_ + "/gateway.conf";
  std::ofstream(file) << "port=0\napi-keys-file=\"/none\"\n";
  EXPECT_EQ(Wait(Start({"--config", file})), 78);
  EXPECT_NE(Log().find("api-keys-file"), std::string::npos) << Log();
}

TEST_F(MainTest, SaysItsVersion) { EXPECT_EQ(Wait(Start({"--version"})), 0); }

TEST_F(MainTest, AnAddressWithColonsIsInBracketsInItsUrl) {
  Start({"--port", "0", "--host", "::1"});
  ASSERT_TRUE(Port().has_value()) << Log();
  for (int i = 0; i < kLooks && Log().find("listening") == std::string::npos;
       ++i)
    std::this_thread::sleep_for(kLook);
  EXPECT_NE(Log().find("listening on http://[::1]:"), std::string::npos)
      << Log();
}

TEST_F(MainTest, OneAtATime) {
  Start({"--port", "0"});
  const auto port = Port();
  ASSERT_TRUE(port.has_value()) << Log();
  EXPECT_EQ(Wait(Start({"--port", "0"})), 1);
  EXPECT_NE(Log().find("another process serves it"), std::string::npos)
      << Log();
  // Another run directory, the same port.
  const std::string other = folder_ + "/other";
  EXPECT_EQ(Wait(Start({"--run-dir", other, "--port", std::to_string(*port)})),
            1);
  EXPECT_NE(Log().find(std::to_string(*port)), std::string::npos) << Log();
}

}  // namespace
}  // namespace holdfast::gateway
