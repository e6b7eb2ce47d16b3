// A cache service of this build as a process of its own.
#ifndef HOLDFAST_TESTS_CACHE_SERVICE_PROCESS_H_
#define HOLDFAST_TESTS_CACHE_SERVICE_PROCESS_H_

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::testing {

// Killed with the object, and with this process. What it logs goes to the
// test's output.
class ServiceProcess {
 public:
  // `flags` come after the folders.
  ServiceProcess(std::string program, std::string run_dir,
                 std::string cache_dir, std::vector<std::string> flags)
      : command_({std::move(program), "--run-dir", std::move(run_dir),
                  "--cache-dir", std::move(cache_dir), "--log-level", "warn"}) {
    command_.insert(command_.end(), flags.begin(), flags.end());
    Start();
  }
  ~ServiceProcess() { End(SIGKILL); }
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  void Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }
  // Sends the signal and waits for the end.
  void End(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Start() {
    std::vector<char*> arguments;
    for (std::string& word : command_) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    ASSERT_GT(pid_, 0);
  }

 private:
  std::vector<std::string> command_;
  pid_t pid_ = -1;
};

}  // namespace holdfast::testing

#endif  // HOLDFAST_TESTS_CACHE_SERVICE_PROCESS_H_
