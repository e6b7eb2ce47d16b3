// The index alone.
#include <malloc.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "cachesvc/index/rocksdb_index.h"
#include "cachesvc/index/rows.h"
#include "cachesvc/store/catalog.h"
#include "tests/bench/disk_bench.h"

namespace holdfast::bench {
namespace {

using namespace cachesvc;  // NOLINT: a bench of that part
using std::chrono::steady_clock;

constexpr std::uint64_t kBatchRows = 10'000;
constexpr int kReads = 100'000;

// What the process has allocated. Not what is resident: memory that an earlier
// measurement gave back would be taken again without a trace.
double AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

ChunkRow Row(std::uint64_t number) {
  std::mt19937_64 random(number);
  ChunkRow row;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t a = random(), b = random();
    std::memcpy(row.file_key.data() + 8 * i, &a, 8);
    std::memcpy(row.prefix_key.data() + 8 * i, &b, 8);
  }
  row.end_position = 1024;
  row.file_bytes = 100 << 20;
  return row;
}

double DiskBytes(const std::string& folder) {
  double sum = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) sum += static_cast<double>(entry.file_size());
  }
  return sum;
}

}  // namespace

absl::Status MeasureIndex(const DiskBenchOptions& options,
                          const std::string& folder, DiskBench& bench) {
  const double before = AllocatedBytes();
  RocksDbOptions rocks;
  rocks.folder = folder;
  auto index = OpenRocksDbIndex(rocks);
  if (!index.ok()) return index.status();
  for (std::uint64_t at = 0; at < options.rows; at += kBatchRows) {
    IndexBatch batch;
    for (std::uint64_t i = at; i < std::min(options.rows, at + kBatchRows);
         ++i) {
      const ChunkRow row = Row(i);
      const std::string key = RowKey(row.fingerprint, row.file_key);
      batch.Put(Table::kChunks, key, EncodeRow(key, row));
    }
    if (auto s = (*index)->Write(batch, Durability::kLazy); !s.ok()) return s;
  }
  std::mt19937_64 random(3);
  std::vector<double> us;
  for (int i = 0; i < kReads; ++i) {
    const ChunkRow row = Row(random() % options.rows);
    const std::string key = RowKey(row.fingerprint, row.file_key);
    const auto start = steady_clock::now();
    const auto value = (*index)->Get(Table::kChunks, key);
    us.push_back(
        std::chrono::duration<double, std::micro>(steady_clock::now() - start)
            .count());
    if (!value.ok()) return value.status();
    if (!value->has_value()) return absl::InternalError("a row is missing");
  }
  bench.latency.push_back(Latency("one key of the index", us));
  const double rows = static_cast<double>(options.rows);
  bench.rows = options.rows;
  bench.index_memory_a_row = (AllocatedBytes() - before) / rows;
  bench.index_bytes_a_row = DiskBytes(folder) / rows;
  index->reset();
  const double empty = AllocatedBytes();
  Catalog catalog;
  for (std::uint64_t i = 0; i < options.rows; ++i) catalog.AddChunk(Row(i));
  bench.catalog_memory_a_row = (AllocatedBytes() - empty) / rows;
  return absl::OkStatus();
}

}  // namespace holdfast::bench
