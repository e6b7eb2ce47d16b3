#include "tests/cuda_emulation/program_control.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::emulation {
namespace {

constexpr std::string_view kFlags = "--emulated-";
constexpr std::string_view kMemory = "--emulated-memory-mb=";
constexpr std::string_view kUuid = "--emulated-uuid=";
constexpr std::string_view kNoIpc = "--emulated-no-ipc";

std::size_t NumberOf(std::string_view flag, std::string_view name) {
  return std::strtoull(flag.data() + name.size(), nullptr, 10);
}

void TakeFlag(std::string_view flag, FakeDevice& device) {
  if (flag.starts_with(kMemory)) {
    device.total_bytes = NumberOf(flag, kMemory) << 20;
  }
  if (flag.starts_with(kUuid)) {
    device.uuid_byte = static_cast<char>(NumberOf(flag, kUuid));
  }
  if (flag == kNoIpc) device.ipc = false;
}

void DoAsTold() {
  std::string word;
  while (std::cin >> word) {
    std::string name;
    int error = 0;
    if (word == "release") {
      ReleaseCalls();
    } else if (word == "hold") {
      std::cin >> name;
      HoldCall(name);
    } else {
      std::cin >> error;
      FailCall(word, 1, static_cast<cudaError_t>(error));
    }
  }
}

}  // namespace

void ControlProgram(int& argc, char**& argv) {
  FakeDevice device;
  device.integrated = false;  // the budget is its own memory
  while (argc > 1 && std::string_view(argv[1]).starts_with(kFlags)) {
    TakeFlag(argv[1], device);
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  ResetFakeRuntime(device);
  // A daemon waits for signals by itself: this thread must not take them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(DoAsTold).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace holdfast::emulation
