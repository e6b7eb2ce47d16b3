// holdfast-engine on an emulated device. Reads from its standard input which
// call is to fail next: a name and the error's number, a line each.
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "tests/cuda_emulation/fake_runtime.h"

int EngineMain(int argc, char** argv);

namespace {

constexpr std::string_view kMemoryFlag = "--emulated-memory-mb=";

void FailAsTold() {
  std::string name;
  int error = 0;
  while (std::cin >> name >> error) {
    holdfast::emulation::FailCall(name, 1, static_cast<cudaError_t>(error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  holdfast::emulation::FakeDevice device;
  device.integrated = false;  // the budget is its own memory
  if (argc > 1 && std::string_view(argv[1]).starts_with(kMemoryFlag)) {
    device.total_bytes =
        std::strtoull(argv[1] + kMemoryFlag.size(), nullptr, 10) << 20;
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  holdfast::emulation::ResetFakeRuntime(device);
  // The engine waits for signals by itself: this thread must not take them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(FailAsTold).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return EngineMain(argc, argv);
}
