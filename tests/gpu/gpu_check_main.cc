// holdfast-gpu-check: everything that only a device can show, in one run.
// scripts/gpu-check builds and starts it; deploy/GPU.md says how.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/device_facts.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/model_checks.h"
#include "tests/gpu/report.h"
#include "tests/gpu/timings.h"

namespace holdfast::gpu_check {
namespace {

using kernels::cuda::ArenaChoice;

constexpr int kUsageError = 64;
constexpr std::chrono::seconds kRoundTrip{20};
#ifdef HOLDFAST_CUDA_EMULATION
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif
// Fewer where every thread of the device is a fiber.
constexpr ModelSizes kModelSizes =
    kEmulated
        ? ModelSizes{.few_row_tokens = 66, .prefill_tokens = 300, .chunk = 256}
        : ModelSizes{};

struct Flags {
  std::string json;
  std::string golden = "tests/golden/model";
  bool kernels_only = false;
  // TOOL=ok or TOOL=refused: why, of compute-sanitizer's runs before this one.
  std::vector<std::string> sanitized;
};

int Usage() {
  std::fputs(
      "usage: holdfast-gpu-check [--json=FILE] [--golden=FOLDER]\n"
      "       [--kernels-only] [--sanitized=TOOL=RESULT]...\n",
      stderr);
  return kUsageError;
}

void CheckKernels(kernels::CudaBackend& backend, Report& report) {
  Checker first(backend);
  RunAllChecks(first);
  for (const CheckResult& result : first.results()) {
    char detail[64];
    std::snprintf(detail, sizeof(detail), "error %.1e, limit %.0e",
                  result.error, result.limit);
    report.Add("kernel", result.name,
               result.ok() ? Outcome::kOk : Outcome::kFailed,
               result.problem.empty() ? detail : result.problem);
  }
  Checker second(backend);
  RunAllChecks(second);
  const bool equal = first.digest() == second.digest();
  report.Add("exactness", "all kernels, twice",
             equal ? Outcome::kOk : Outcome::kFailed,
             equal ? "equal bytes" : "other bytes in the second run");
}

void CheckIpc(const std::string& program, Report& report) {
  const ArenaChoice choice = kernels::cuda::ChooseArena(program, kRoundTrip);
  report.Add(
      "arena", std::string("kind ") + kernels::cuda::ArenaKindName(choice.kind),
      choice.kind == kernels::cuda::ArenaKind::kCudaIpc ? Outcome::kOk
                                                        : Outcome::kRefused,
      choice.reason);
  const auto add = [&](const char* name, const kernels::Status& status) {
    report.Add("arena", name, status.ok() ? Outcome::kOk : Outcome::kRefused,
               status.ok() ? "works" : status.message());
  };
  add("importer killed", kernels::cuda::KillImporter(program, kRoundTrip));
  add("exporter killed", kernels::cuda::KillExporter(program, kRoundTrip));
  add("shared memory pinned", kernels::cuda::RegisterSharedMemory());
}

int Run(const Flags& flags) {
  auto backend = kernels::MakeCudaBackend({});
  if (!backend.ok()) {
    std::fprintf(stderr, "holdfast-gpu-check: %s\n",
                 backend.status().message().c_str());
    return EXIT_FAILURE;
  }
  std::printf("%s\n", (*backend)->info().target.c_str());
  Report report;
  for (const std::string& run : flags.sanitized) {
    const std::size_t equals = run.find('=');
    const std::string result =
        equals == std::string::npos ? "" : run.substr(equals + 1);
    const Outcome outcome = result == "ok"                  ? Outcome::kOk
                            : result.starts_with("refused") ? Outcome::kRefused
                                                            : Outcome::kFailed;
    report.Add("sanitizer", run.substr(0, equals), outcome, result);
  }
  CheckKernels(**backend, report);
  std::string facts = "null";
  if (!flags.kernels_only) {
    CheckModels(**backend, flags.golden, kModelSizes, report);
    CheckIpc("/proc/self/exe", report);
    MeasureTimings(**backend, kEmulated, report);
    facts = kernels::cuda::DeviceFactsJson("/proc/self/exe");
  }
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << report.Json(facts);
    if (!file.flush()) {
      std::fprintf(stderr, "holdfast-gpu-check: cannot write %s\n",
                   flags.json.c_str());
      return EXIT_FAILURE;
    }
  }
  std::printf("\n%s\n%s%s\n", report.Table().c_str(),
              kEmulated ? "emulated device: figures say nothing; " : "",
              report.failed() ? "FAILED" : "ok");
  return report.failed() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace
}  // namespace holdfast::gpu_check

int main(int argc, char** argv) {
  using holdfast::kernels::cuda::kIpcPeerFlag;
  holdfast::gpu_check::Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&](std::string_view name) {
      return argument.starts_with(std::string(name) + "=")
                 ? argv[i] + name.size() + 1
                 : nullptr;
    };
    if (const char* socket = value(kIpcPeerFlag)) {
      return holdfast::kernels::cuda::RunIpcPeer(std::atoi(socket));
    }
    if (const char* json = value("--json")) {
      flags.json = json;
    } else if (const char* golden = value("--golden")) {
      flags.golden = golden;
    } else if (const char* run = value("--sanitized")) {
      flags.sanitized.push_back(run);
    } else if (argument == "--kernels-only") {
      flags.kernels_only = true;
    } else {
      return holdfast::gpu_check::Usage();
    }
  }
  return holdfast::gpu_check::Run(flags);
}
