// A daemon as a child process, with its log and a line to tell it what is to
// fail (program_control.h).
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::emulation {

// Longer than anything takes that works.
inline constexpr std::chrono::seconds kGiveUp{240};

class Program {
 public:
  explicit Program(std::string log) : log_(std::move(log)) {}
  ~Program() { Kill(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The log begins anew.
  void Start(std::vector<std::string> command) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    int input[2];
    ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
    tell_ = input[1];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND,
                                     0600);
    ASSERT_EQ(
        posix_spawn(&child_, argv[0], &actions, nullptr, argv.data(), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
  }
  void Tell(const std::string& line) {
    const std::string told = line + "\n";
    ASSERT_EQ(write(tell_, told.data(), told.size()),
              static_cast<ssize_t>(told.size()));
  }
  void Signal(int signal) { kill(child_, signal); }
  // Its exit status, or less the signal that ended it.
  int End(int signal) {
    kill(child_, signal);
    return Wait();
  }
  int Wait() {
    int status = 0;
    const pid_t child = std::exchange(child_, -1);
    const auto until = std::chrono::steady_clock::now() + kGiveUp;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(ended, child) << "did not end\n" << Log();
    if (ended == 0) kill(child, SIGKILL);
    if (tell_ >= 0) close(std::exchange(tell_, -1));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Kill() {
    if (child_ > 0) (void)End(SIGKILL);
  }

  std::string Log() const {
    std::ostringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }
  // Until the log has a line with all of `parts`.
  ::testing::AssertionResult Logs(const std::vector<std::string_view>& parts) {
    const auto until = std::chrono::steady_clock::now() + kGiveUp;
    for (;;) {
      std::istringstream lines(Log());
      for (std::string line; std::getline(lines, line);) {
        bool all = true;
        for (const auto part : parts) {
          all = all && line.find(part) != std::string::npos;
        }
        if (all) return ::testing::AssertionSuccess();
      }
      if (std::chrono::steady_clock::now() >= until) {
        return ::testing::AssertionFailure()
               << "no line with \"" << parts[0] << "\" ... in\n"
               << Log();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  const std::string log_;
  pid_t child_ = -1;
  int tell_ = -1;  // its standard input
};

}  // namespace holdfast::emulation

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_H_
