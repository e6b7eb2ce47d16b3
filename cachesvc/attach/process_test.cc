// Kills and stops real processes: the cache service, and stand-ins that attach
// as engines do.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "shared/attach/test_peers.h"

namespace holdfast::cachesvc {
namespace {

using attach::kTestDeadline;
using attach::TestDir;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

// A child with pipes; killed with the object, and with this process.
class Child {
 public:
  Child(const std::vector<std::string>& command,
        const std::string& notify_socket = "") {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    std::vector<char*> arguments;
    for (const std::string& word : command)
      arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      if (!notify_socket.empty())
        setenv("NOTIFY_SOCKET", notify_socket.c_str(), 1);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    input_ = UniqueFd(in[1]);
    output_ = UniqueFd(out[0]);
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) { ASSERT_EQ(kill(pid_, signal), 0); }

  // The next line of its output; nothing at its end or the deadline.
  std::optional<std::string> Line() {
    const auto until = steady_clock::now() + kTestDeadline;
    while (true) {
      if (const auto end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (!Read(until)) return std::nullopt;
    }
  }
  // The next line that starts with `prefix`; the lines before it are dropped.
  std::string LineWith(const std::string& prefix) {
    while (auto line = Line()) {
      if (line->starts_with(prefix)) return *line;
    }
    ADD_FAILURE() << "no line " << prefix;
    return "";
  }
  // Its exit status, negative for a signal; waits for its end.
  int Wait() {
    const auto until = steady_clock::now() + kTestDeadline;
    while (Read(until)) {
    }
    if (steady_clock::now() >= until) {
      ADD_FAILURE() << "pid " << pid_ << " does not end";
      kill(pid_, SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // What it printed that no Line() took.
  const std::string& rest() const { return buffer_; }

 private:
  // False at the end of the output or at the deadline.
  bool Read(steady_clock::time_point until) {
    const auto left =
        std::chrono::ceil<milliseconds>(until - steady_clock::now());
    pollfd polled = {.fd = output_.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 ||
        poll(&polled, 1, static_cast<int>(left.count())) != 1)
      return false;
    char bytes[4096];
    const ssize_t count = read(output_.get(), bytes, sizeof(bytes));
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(count));
    return true;
  }

  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::string buffer_;
};

class ProcessTest : public testing::Test {
 protected:
  // Runs the cache service and waits until it says that it is ready, as a
  // service manager does.
  std::unique_ptr<Child> StartService() {
    const std::string path = dir_.path() + "/notify";
    unlink(path.c_str());
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
    auto service = std::make_unique<Child>(
        std::vector<std::string>{HOLDFAST_CACHED, "--run-dir", run_dir_,
                                 "--log-level", "error"},
        path);
    EXPECT_TRUE(attach::WaitReadable(socket.get())) << "not ready";
    char message[256] = {};
    EXPECT_GT(recv(socket.get(), message, sizeof(message) - 1, 0), 0);
    EXPECT_THAT(message, StartsWith("READY=1"));
    return service;
  }
  std::unique_ptr<Child> StartEngine(int handshake_ms = 5000) {
    return std::make_unique<Child>(std::vector<std::string>{
        HOLDFAST_STANDIN, run_dir_, std::to_string(handshake_ms)});
  }
  nlohmann::json Status() {
    Child cachectl(
        {HOLDFAST_CACHECTL, "--run-dir", run_dir_, "status", "--json"});
    EXPECT_EQ(cachectl.Wait(), 0);
    return nlohmann::json::parse(cachectl.rest(), nullptr, false);
  }
  static std::string RefusedBecauseOf(const Child& engine) {
    return "refused 0 engine pid " + std::to_string(engine.pid()) +
           " is attached";
  }

  TestDir dir_;
  const std::string run_dir_ = dir_.path() + "/run";
};

TEST_F(ProcessTest, KilledEngineMakesRoomForTheNext) {
  const auto service = StartService();
  const auto first = StartEngine();
  first->LineWith("attached 1");
  const auto second = StartEngine();
  EXPECT_EQ(second->Line(), RefusedBecauseOf(*first));
  first->Signal(SIGKILL);
  EXPECT_EQ(second->Line(),
            "attached 1 cache service pid " + std::to_string(service->pid()));
  EXPECT_EQ(Status()["engine"]["pid"], second->pid());
}

// A long restore has a file for each of its chunks.
TEST_F(ProcessTest, TheServiceMayOpenManyFiles) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(256, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto service = StartService();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit of_service;
  ASSERT_EQ(prlimit(service->pid(), RLIMIT_NOFILE, nullptr, &of_service), 0);
  EXPECT_EQ(of_service.rlim_cur, std::min<rlim_t>(16384, before.rlim_max));
}

TEST_F(ProcessTest, KilledServiceIsFoundAgainWithANewEpoch) {
  auto service = StartService();
  const auto engine = StartEngine();
  engine->LineWith("attached 1");
  const auto before = Status();
  const std::string gone = std::to_string(service->pid());
  service->Signal(SIGKILL);
  EXPECT_EQ(engine->LineWith("detached"),
            "detached 1 cache service pid " + gone + " went away");
  EXPECT_EQ(service->Wait(), -SIGKILL);
  // The sockets that the dead one left are in the way of nobody.
  service = StartService();
  EXPECT_EQ(engine->LineWith("attached 2"),
            "attached 2 cache service pid " + std::to_string(service->pid()));
  const auto after = Status();
  EXPECT_EQ(after["engine"]["pid"], engine->pid());
  EXPECT_EQ(after["engine"]["model_name"], "standin");
  EXPECT_NE(after["engine"]["epoch"], before["engine"]["epoch"]);
  EXPECT_EQ(after["attaches_total"], 1);
}

TEST_F(ProcessTest, StoppedServiceTimesOutAndServesWhenItGoesOn) {
  const auto service = StartService();
  service->Signal(SIGSTOP);
  const auto engine = StartEngine(/*handshake_ms=*/50);
  EXPECT_THAT(engine->Line().value_or(""),
              HasSubstr("no answer to the hello within 50 ms"));
  service->Signal(SIGCONT);
  engine->LineWith("attached 1");
  EXPECT_EQ(Status()["engine"]["pid"], engine->pid());
}

TEST_F(ProcessTest, StoppedServiceKeepsItsEngine) {
  const auto service = StartService();
  const auto engine = StartEngine();
  engine->LineWith("attached 1");
  service->Signal(SIGSTOP);
  Child cachectl({HOLDFAST_CACHECTL, "--run-dir", run_dir_, "status"});
  EXPECT_EQ(cachectl.Wait(), 1);  // after its deadline
  service->Signal(SIGCONT);
  EXPECT_EQ(Status()["engine"]["pid"], engine->pid());
  EXPECT_EQ(Status()["attaches_total"], 1);
}

TEST_F(ProcessTest, StoppingServiceServesItsEngineToTheEnd) {
  const auto service = StartService();
  const auto engine = StartEngine();
  engine->LineWith("attached 1");
  service->Signal(SIGTERM);
  const auto late = StartEngine();
  // Refused as busy until the signal is seen, then as stopping.
  late->LineWith("refused 0 the cache service is stopping");
  EXPECT_EQ(Status()["draining"], true);
  EXPECT_EQ(Status()["engine"]["pid"], engine->pid());
  engine->Signal(SIGKILL);
  EXPECT_EQ(service->Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(run_dir_ + "/attach.sock"));
}

TEST_F(ProcessTest, IdleServiceStopsAtOnceAndASecondSignalCutsADrain) {
  auto service = StartService();
  service->Signal(SIGTERM);
  EXPECT_EQ(service->Wait(), 0);
  service = StartService();
  const auto engine = StartEngine();
  engine->LineWith("attached 1");
  service->Signal(SIGTERM);
  const auto late = StartEngine();
  late->LineWith("refused 0 the cache service is stopping");
  service->Signal(SIGINT);
  EXPECT_EQ(service->Wait(), 0);
}

TEST_F(ProcessTest, SecondServiceOfOneDirectoryEnds) {
  const auto service = StartService();
  const auto engine = StartEngine();
  engine->LineWith("attached 1");
  Child second(
      {HOLDFAST_CACHED, "--run-dir", run_dir_, "--log-level", "error"});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(Status()["pid"], service->pid());
  EXPECT_EQ(Status()["engine"]["pid"], engine->pid());
}

TEST_F(ProcessTest, BadConfigurationEndsWith78) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), HOLDFAST_CACHED);
    return Child(flags).Wait();
  };
  EXPECT_EQ(run({"--run-dir", run_dir_, "--staging-mb", "3"}), 78);
  EXPECT_EQ(run({"--run-dir", run_dir_, "--log-level", "loud"}), 78);
  EXPECT_EQ(run({"--run-dir", run_dir_, "--no-such-flag"}), 78);
  EXPECT_EQ(run({"--run-dir", dir_.path() + "/absent/run"}), 78);
  std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  EXPECT_EQ(run({"--run-dir", dir_.path()}), 78) << "others may write there";
  EXPECT_EQ(run({"--version"}), 0);
}

TEST_F(ProcessTest, CachectlSaysWhatIsWrong) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), HOLDFAST_CACHECTL);
    return Child(flags).Wait();
  };
  EXPECT_EQ(run({"--run-dir", run_dir_, "status"}), 1);
  EXPECT_EQ(run({"--run-dir", run_dir_}), 2);
  EXPECT_EQ(run({"status", "--no-such-flag"}), 2);
  EXPECT_EQ(run({"no-such-command"}), 2);
  const auto service = StartService();
  Child table({HOLDFAST_CACHECTL, "status", "--run-dir", run_dir_});
  EXPECT_EQ(table.Wait(), 0);
  EXPECT_THAT(table.rest(), HasSubstr("engine          none is attached\n"));
  EXPECT_THAT(table.rest(),
              HasSubstr("tier disk       not available: no --cache-dir\n"));
}

}  // namespace
}  // namespace holdfast::cachesvc
