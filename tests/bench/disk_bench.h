// The cache service's disk: bandwidth beside raw direct I/O of the same sizes,
// lookups, the index, a start.
#ifndef HOLDFAST_TESTS_BENCH_DISK_BENCH_H_
#define HOLDFAST_TESTS_BENCH_DISK_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "shared/cache_layout.h"
#include "shared/prefix_key.h"

namespace holdfast::bench {

struct DiskBenchOptions {
  std::string folder;  // on the disk to measure; a new folder in it is used
  std::uint64_t chunk_mb = 64;  // of one chunk file
  std::uint64_t chunks = 8;     // of one conversation
  int rounds = 5;
  std::uint64_t files = 50'000;    // of the lookup and the start
  std::uint64_t rows = 1'000'000;  // of the index
};

// Each ratio is of two runs that followed each other; medians over the rounds.
struct BandwidthResult {
  std::string name;  // restore, spill
  std::string pool;  // which I/O pool ran
  double mb_per_s = 0;
  double raw_mb_per_s = 0;
  double ratio = 0;
};

// Microseconds.
struct LatencyResult {
  std::string name;
  std::uint64_t samples = 0;
  double p50_us = 0;
  double p99_us = 0;
};

struct DiskBench {
  std::vector<BandwidthResult> bandwidth;
  std::vector<LatencyResult> latency;
  std::uint64_t files = 0;
  double start_s = 0;  // the sweep over the files, index included
  std::uint64_t rows = 0;
  double index_bytes_a_row = 0;     // on the disk
  double index_memory_a_row = 0;    // of the process, after a million reads
  double catalog_memory_a_row = 0;  // of the store's own view of a chunk
};

absl::StatusOr<DiskBench> RunDiskBench(const DiskBenchOptions& options);

// The parts of it.
absl::Status MeasureBandwidth(const DiskBenchOptions& options,
                              const std::string& folder, DiskBench& bench);
absl::Status MeasureLookup(const DiskBenchOptions& options,
                           const std::string& folder, DiskBench& bench);
// Of a cache service that has just opened the folder; each prompt's block keys
// have so many candidates there.
absl::Status MeasureLookupOverGrpc(
    const std::string& folder, const CacheLayout& layout,
    const std::vector<std::vector<PrefixKey>>& prompts, std::size_t candidates,
    DiskBench& bench);
absl::Status MeasureIndex(const DiskBenchOptions& options,
                          const std::string& folder, DiskBench& bench);

// Sorts `us`.
LatencyResult Latency(const std::string& name, std::vector<double> us);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_DISK_BENCH_H_
