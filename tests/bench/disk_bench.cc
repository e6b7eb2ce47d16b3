#include "tests/bench/disk_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace holdfast::bench {

LatencyResult Latency(const std::string& name, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  LatencyResult result;
  result.name = name;
  result.samples = us.size();
  if (us.empty()) return result;
  result.p50_us = us[us.size() / 2];
  result.p99_us = us[us.size() * 99 / 100];
  return result;
}

absl::StatusOr<DiskBench> RunDiskBench(const DiskBenchOptions& options) {
  std::string folder = options.folder + "/holdfast-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, "make a folder in " + options.folder);
  }
  DiskBench bench;
  absl::Status status = MeasureBandwidth(options, folder + "/bandwidth", bench);
  if (status.ok()) status = MeasureLookup(options, folder + "/files", bench);
  if (status.ok()) status = MeasureIndex(options, folder + "/rows", bench);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!status.ok()) return status;
  return bench;
}

}  // namespace holdfast::bench
