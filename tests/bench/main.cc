// holdfast-bench: kernels against their floors, models in tokens a second, the
// cache service's disk.
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "hwy/targets.h"
#include "nlohmann/json.hpp"
#include "tests/bench/blas.h"
#include "tests/bench/cases.h"
#include "tests/bench/compare.h"
#include "tests/bench/disk_bench.h"
#include "tests/bench/model_bench.h"
#include "tests/bench/threads_bench.h"

namespace holdfast::bench {
namespace {

using nlohmann::json;

struct KernelOptions {
  CompareOptions compare;
  std::string filter = ".*";
};

// Of a test's time: operations below it are not printed.
constexpr double kLeastShare = 0.03;

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// Of the last minute.
double Load() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

bool WriteJson(const std::string& file, const json& value) {
  std::ofstream out(file);
  out << value.dump(2) << "\n";
  out.close();
  if (out) return true;
  fmt::print(stderr, "write {} failed\n", file);
  return false;
}

json ToJson(const Comparison& c) {
  return {{"name", c.name},
          {"floor", c.floor},
          {"unit", c.unit + "/s"},
          {"rate", c.rate},
          {"floor_rate", c.floor_rate},
          {"ratio", c.ratio},
          {"ratio_1_thread_cpu_time", c.ratio_1},
          {"threads_speed", c.threads_speed},
          {"floor_threads_speed", c.floor_threads_speed}};
}

void Print(const Comparison& c) {
  if (c.floor.empty()) {
    fmt::print("{:<62} {:>8.1f} {:>7} {:>8} {:>11} {:>6} {:>6} {:>6.2f}\n",
               c.name, c.rate, c.unit + "/s", "", "", "", "", c.threads_speed);
  } else {
    fmt::print(
        "{:<62} {:>8.1f} {:>7} {:>8.1f} {:>11} {:>6.2f} {:>6.2f} {:>6.2f} "
        "{:>6.2f}\n",
        c.name, c.rate, c.unit + "/s", c.floor_rate, c.floor, c.ratio,
        c.ratio_1, c.threads_speed, c.floor_threads_speed);
  }
  std::fflush(stdout);
}

double GeometricMean(const std::vector<double>& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

// Over the products of many rows of each weight type.
json PrintMeans(const std::vector<Comparison>& results) {
  struct Ratios {
    std::vector<double> wall, cpu;
  };
  std::map<std::string, Ratios> groups;
  for (const Comparison& c : results) {
    if (c.floor != "sgemm") continue;
    Ratios& group = groups[c.name.substr(0, c.name.rfind('/'))];
    group.wall.push_back(c.ratio);
    group.cpu.push_back(c.ratio_1);
  }
  json means = json::object();
  for (const auto& [name, ratios] : groups) {
    const double wall = GeometricMean(ratios.wall);
    const double cpu = GeometricMean(ratios.cpu);
    fmt::print("{:<62} {:>36} {:>6.2f} {:>6.2f}\n", name, "geometric mean",
               wall, cpu);
    means[name] = {{"ratio", wall}, {"ratio_1_thread_cpu_time", cpu}};
  }
  return means;
}

int Kernels(const KernelOptions& options, const std::string& json_file) {
  Machine machine;
  std::vector<CaseSpec> specs = MachineCases(machine);
  for (auto& more : {ProductCases(machine), AttentionCases(machine),
                     RowCases(machine), GdnCases(machine)}) {
    specs.insert(specs.end(), more.begin(), more.end());
  }
  const std::string target = machine.backend(kThreads).info().target;
  const double load = Load();
  fmt::print(
      "{} ({}), OpenBLAS kernels: {}, {} threads, medians of {} rounds, load "
      "{:.1f}\n",
      CpuName(), target, BlasCore(), kThreads, options.compare.rounds, load);
  fmt::print("{:<62} {:>8} {:>7} {:>8} {:>11} {:>6} {:>6} {:>6} {:>6}\n",
             "kernel", "rate", "", "floor", "", "ratio", "1 cpu", "2 vs 1",
             "floor");
  const std::regex filter(options.filter);
  std::vector<Comparison> results;
  for (const CaseSpec& spec : specs) {
    if (!std::regex_search(spec.name, filter)) continue;
    results.push_back(Compare(spec, options.compare));
    Print(results.back());
  }
  json report = {{"cpu", CpuName()},
                 {"target", target},
                 {"openblas", BlasCore()},
                 {"threads", kThreads},
                 {"rounds", options.compare.rounds},
                 {"load_before", load},
                 {"load_after", Load()},
                 {"geometric_means", PrintMeans(results)},
                 {"kernels", json::array()}};
  for (const Comparison& c : results) report["kernels"].push_back(ToJson(c));
  if (json_file.empty() || WriteJson(json_file, report)) return EXIT_SUCCESS;
  return EXIT_FAILURE;
}

// The operations of a test, each with its share of the test's time.
json PrintOperations(const ModelSpeed& speed) {
  const double seconds = speed.tokens / speed.tokens_per_s;
  json operations = json::array();
  for (const OperationTime& operation : speed.operations) {
    const double share = operation.seconds / seconds;
    fmt::print("    {:<32} {:>7} calls {:>10.3f} ms {:>6.1f} %\n",
               operation.name, operation.calls, 1e3 * operation.seconds,
               100 * share);
    operations.push_back({{"name", operation.name},
                          {"calls", operation.calls},
                          {"ms", 1e3 * operation.seconds},
                          {"share", share}});
  }
  return operations;
}

int Model(const ModelBenchOptions& options, const std::string& json_file) {
  const double load = Load();
  const auto bench = RunModelBench(options);
  if (!bench.ok()) {
    fmt::print(stderr, "{}\n", std::string(bench.status().message()));
    return EXIT_FAILURE;
  }
  json speeds = json::array();
  fmt::print("{} on {} ({}), {} threads\n", bench->model, CpuName(),
             bench->backend, options.threads);
  for (const ModelSpeed& speed : bench->speeds) {
    fmt::print("{:<8} {:>6} tokens at depth {:>6} {:>10.1f} tokens/s\n",
               speed.test, speed.tokens, speed.depth, speed.tokens_per_s);
    speeds.push_back({{"test", speed.test},
                      {"tokens", speed.tokens},
                      {"depth", speed.depth},
                      {"tokens_per_s", speed.tokens_per_s},
                      {"operations", PrintOperations(speed)}});
  }
  const json report = {{"model", bench->model}, {"backend", bench->backend},
                       {"cpu", CpuName()},      {"threads", options.threads},
                       {"load_before", load},   {"speeds", speeds}};
  if (json_file.empty() || WriteJson(json_file, report)) return EXIT_SUCCESS;
  return EXIT_FAILURE;
}

int Threads(const ThreadsBenchOptions& options, const std::string& json_file) {
  const double load = Load();
  const auto bench = RunThreadsBench(options);
  if (!bench.ok()) {
    fmt::print(stderr, "{}\n", std::string(bench.status().message()));
    return EXIT_FAILURE;
  }
  const ThreadsMachine& machine = bench->machine;
  fmt::print(
      "{} on {} ({}), medians of {} rounds, load {:.1f}\nplain read of 128 MiB "
      "{:.1f} GB/s on one thread, {:.1f} on {}; an empty loop {:.2f} us\n",
      bench->model, CpuName(), bench->backend, options.rounds, load,
      machine.one_read, machine.two_read, kThreads, machine.loop_us);
  fmt::print("{:<14} {:<24} {:>6} {:>11} {:>11} {:>6} {:>6} {:>6}\n", "test",
             "operation", "share", "1 thread us", "2 threads", "gain", "most",
             "GB/s");
  json gains = json::array();
  for (const ThreadsGain& gain : bench->gains) {
    gains.push_back({{"test", gain.test},
                     {"depth", gain.depth},
                     {"operation", gain.operation},
                     {"share", gain.share},
                     {"one_us", gain.one_us},
                     {"two_us", gain.two_us},
                     {"gain", gain.gain},
                     {"most", gain.most},
                     {"gb_per_s", gain.gb_per_s}});
    if (gain.share < kLeastShare) continue;
    fmt::print(
        "{:<7} {:>6} {:<24} {:>4.1f} % {:>11.2f} {:>11.2f} {:>6.2f} {:>6.2f} "
        "{:>6.1f}\n",
        gain.test, gain.depth,
        gain.operation.empty() ? "the whole" : gain.operation, 100 * gain.share,
        gain.one_us, gain.two_us, gain.gain, gain.most, gain.gb_per_s);
  }
  const json report = {{"model", bench->model},
                       {"backend", bench->backend},
                       {"cpu", CpuName()},
                       {"rounds", options.rounds},
                       {"load_before", load},
                       {"read_gb_per_s", {machine.one_read, machine.two_read}},
                       {"loop_us", machine.loop_us},
                       {"gains", gains}};
  if (json_file.empty() || WriteJson(json_file, report)) return EXIT_SUCCESS;
  return EXIT_FAILURE;
}

json PrintDisk(const DiskBench& bench) {
  json report = {{"bandwidth", json::array()}, {"latency", json::array()}};
  for (const BandwidthResult& r : bench.bandwidth) {
    fmt::print("{:<8} {:>8.0f} MB/s, raw {:>8.0f} MB/s, ratio {:.2f} ({})\n",
               r.name, r.mb_per_s, r.raw_mb_per_s, r.ratio, r.pool);
    report["bandwidth"].push_back({{"name", r.name},
                                   {"pool", r.pool},
                                   {"mb_per_s", r.mb_per_s},
                                   {"raw_mb_per_s", r.raw_mb_per_s},
                                   {"ratio", r.ratio}});
  }
  for (const LatencyResult& r : bench.latency) {
    fmt::print("{:<30} p50 {:>8.1f} us, p99 {:>8.1f} us ({} samples)\n", r.name,
               r.p50_us, r.p99_us, r.samples);
    report["latency"].push_back({{"name", r.name},
                                 {"p50_us", r.p50_us},
                                 {"p99_us", r.p99_us},
                                 {"samples", r.samples}});
  }
  fmt::print("start with {} files: {:.2f} s\n", bench.files, bench.start_s);
  fmt::print(
      "{} rows: index {:.0f} bytes a row on the disk, {:.0f} in memory; "
      "catalog {:.0f} bytes a chunk in memory\n",
      bench.rows, bench.index_bytes_a_row, bench.index_memory_a_row,
      bench.catalog_memory_a_row);
  report["files"] = bench.files;
  report["start_s"] = bench.start_s;
  report["rows"] = bench.rows;
  report["index_bytes_a_row"] = bench.index_bytes_a_row;
  report["index_memory_a_row"] = bench.index_memory_a_row;
  report["catalog_memory_a_row"] = bench.catalog_memory_a_row;
  return report;
}

int Disk(const DiskBenchOptions& options, const std::string& json_file) {
  const double load = Load();
  const auto bench = RunDiskBench(options);
  if (!bench.ok()) {
    fmt::print(stderr, "{}\n", std::string(bench.status().message()));
    return EXIT_FAILURE;
  }
  json report = PrintDisk(*bench);
  report["load_before"] = load;
  if (json_file.empty() || WriteJson(json_file, report)) return EXIT_SUCCESS;
  return EXIT_FAILURE;
}

void AddDiskOptions(CLI::App& disk, DiskBenchOptions& options) {
  disk.add_option("--folder", options.folder,
                  "on the disk to measure; what is made in it is removed")
      ->required();
  disk.add_option("--chunk-mb", options.chunk_mb, "of one chunk file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  disk.add_option("--chunks", options.chunks, "of one conversation")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  disk.add_option("--rounds", options.rounds, "of the bandwidths")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  disk.add_option("--files", options.files, "of the lookup and the start")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  disk.add_option("--rows", options.rows, "of the index")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

// Keeps kernels and plain reads to one instruction set of this machine.
// Returns what is wrong with the name; empty: nothing.
std::string KeepToTarget(const std::string& name) {
  std::string names;
  const std::int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    if (name == hwy::TargetName(target)) {
      hwy::SetSupportedTargetsForTest(target);
      return "";
    }
    names += std::string(names.empty() ? "" : ", ") + hwy::TargetName(target);
  }
  return "not of this machine and build, which have " + names;
}

// OpenBLAS reads these when it is loaded, which was before main: without them
// once more, so that a floor is what the library chooses for this machine.
// Returns where there are none.
void DropBlasOverrides(char** argv) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (name.rfind("OPENBLAS_", 0) == 0 || name.rfind("GOTO_", 0) == 0 ||
        name == "OMP_NUM_THREADS") {
      names.push_back(name);
    }
  }
  if (names.empty()) return;
  for (const std::string& name : names) {
    fmt::print(stderr, "{} is left out of account\n", name);
    unsetenv(name.c_str());
  }
  execv("/proc/self/exe", argv);
  fmt::print(stderr, "start again without them: {}\n", std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

int Main(int argc, char** argv) {
  KernelOptions kernel_options;
  ModelBenchOptions model_options;
  ThreadsBenchOptions threads_options;
  DiskBenchOptions disk_options;
  std::string json_file, target;
  CLI::App app("Speed of Holdfast's kernels, models and disk",
               "holdfast-bench");
  app.require_subcommand(1);
  auto* kernels = app.add_subcommand(
      "kernels", "every kernel against its floor, in alternating runs");
  kernels->add_option("--rounds", kernel_options.compare.rounds)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  kernels
      ->add_option("--min-seconds", kernel_options.compare.min_seconds,
                   "of one measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  kernels->add_option("--filter", kernel_options.filter,
                      "regular expression for the kernels' names");
  auto* model = app.add_subcommand("model",
                                   "a model file in tokens a second, and what "
                                   "of the time each operation takes");
  model->add_option("--model", model_options.file)->required();
  model->add_option("--threads", model_options.threads)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  model->add_option("--prompt", model_options.prompt, "tokens of a prefill")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  model->add_option("--generate", model_options.generate, "tokens of a decode")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  model
      ->add_option("--depth", model_options.depths,
                   "tokens before them; a list with commas")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  auto* threads = app.add_subcommand(
      "threads", "what two threads gain over one in a model's steps");
  threads->add_option("--model", threads_options.file)->required();
  threads->add_option("--rounds", threads_options.rounds)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  threads->add_option("--prompt", threads_options.prompt)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  threads->add_option("--generate", threads_options.generate)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  threads
      ->add_option("--depth", threads_options.depths,
                   "tokens before them; a list with commas")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  auto* disk = app.add_subcommand(
      "disk", "the cache service's files, beside raw direct I/O");
  AddDiskOptions(*disk, disk_options);
  for (auto* command : {kernels, model, threads, disk}) {
    command->add_option("--json", json_file, "file for the results as JSON");
  }
  for (auto* command : {kernels, model, threads}) {
    command
        ->add_option("--target", target,
                     "instruction set to keep to, as the results name it")
        ->check(KeepToTarget);
  }
  CLI11_PARSE(app, argc, argv);
  if (kernels->parsed()) DropBlasOverrides(argv);
  if (disk->parsed()) return Disk(disk_options, json_file);
  if (threads->parsed()) return Threads(threads_options, json_file);
  int count = 1;
  benchmark::Initialize(&count, argv);
  return kernels->parsed() ? Kernels(kernel_options, json_file)
                           : Model(model_options, json_file);
}

}  // namespace
}  // namespace holdfast::bench

int main(int argc, char** argv) { return holdfast::bench::Main(argc, argv); }
