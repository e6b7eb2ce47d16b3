#include "tests/bench/compare.h"

#include <chrono>
#include <thread>

#include "benchmark/benchmark.h"
#include "tests/bench/median.h"

namespace holdfast::bench {
namespace {

// Threads of a BLAS spin for some time after their last product.
constexpr std::chrono::milliseconds kSettle{60};

struct Seconds {
  double wall = 0;
  double cpu = 0;  // of the calling thread
};

class OneRun final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto times = static_cast<double>(run.iterations);
      seconds.wall = run.real_accumulated_time / times;
      seconds.cpu = run.cpu_accumulated_time / times;
    }
  }
  Seconds seconds;
};

Seconds SecondsOf(const std::function<void()>& body, double min_seconds) {
  std::this_thread::sleep_for(kSettle);
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("run",
                               [&body](benchmark::State& state) {
                                 for (auto _ : state) body();
                               })
      ->UseRealTime()
      ->MinTime(min_seconds);
  OneRun reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return reporter.seconds;
}

}  // namespace

Comparison Compare(const CaseSpec& spec, const CompareOptions& options) {
  const std::unique_ptr<Case> bench_case = spec.make();
  std::vector<double> rates, floor_rates, ratios, ratios_1, speeds,
      floor_speeds;
  for (int round = 0; round < options.rounds; ++round) {
    Seconds kernel[2], floor[2];
    for (const int i : {0, 1}) {
      const int threads = i == 0 ? kThreads : 1;
      kernel[i] =
          SecondsOf([&] { bench_case->Kernel(threads); }, options.min_seconds);
      if (spec.floor.empty()) continue;
      floor[i] =
          SecondsOf([&] { bench_case->Floor(threads); }, options.min_seconds);
    }
    rates.push_back(spec.work / kernel[0].wall);
    speeds.push_back(kernel[1].wall / kernel[0].wall);
    if (spec.floor.empty()) continue;
    floor_rates.push_back(spec.work / floor[0].wall);
    ratios.push_back(floor[0].wall / kernel[0].wall);
    ratios_1.push_back(floor[1].cpu / kernel[1].cpu);
    floor_speeds.push_back(floor[1].wall / floor[0].wall);
  }
  return {.name = spec.name,
          .floor = spec.floor,
          .unit = spec.unit,
          .rate = Median(rates),
          .floor_rate = Median(floor_rates),
          .ratio = Median(ratios),
          .ratio_1 = Median(ratios_1),
          .threads_speed = Median(speeds),
          .floor_threads_speed = Median(floor_speeds)};
}

}  // namespace holdfast::bench
