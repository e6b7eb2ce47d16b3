// A folder of many small real files: how long a start takes, and a lookup of
// all lines of a prompt of 128k tokens.
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "cachesvc/admission/admission.h"
#include "cachesvc/index/rocksdb_index.h"
#include "cachesvc/store/open_store.h"
#include "cachesvc/store/prompt_keys.h"
#include "shared/aligned_buffer.h"
#include "tests/bench/disk_bench.h"
#include "tests/bench/unsynced.h"

namespace holdfast::bench {
namespace {

using namespace cachesvc;  // NOLINT: a bench of that part
using std::chrono::steady_clock;

constexpr std::uint64_t kPromptTokens = 131'072;
constexpr std::uint64_t kAnchorEvery = 16'384;
constexpr std::uint64_t kAnchors = kPromptTokens / kAnchorEvery;  // of a prompt
constexpr int kLookups = 10'000;

double MicrosecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - start)
      .count();
}

// Rows of 16 bytes: files of two pages of rows and their key ids.
CacheLayout SmallLayout() {
  CacheLayout layout;
  layout.views = {{"K", 16, 1}};
  layout.sections = {{"h_last", 4096}};
  layout.grid_tokens = 1024;
  return layout;
}

std::vector<KeyId> Prompt(std::uint64_t number) {
  std::vector<KeyId> ids(kPromptTokens);
  for (std::uint64_t i = 0; i < kPromptTokens; ++i) {
    ids[i] = number * kPromptTokens + i;
  }
  return ids;
}

std::vector<PrefixKey> LineKeys(std::span<const PrefixKey> blocks) {
  std::vector<PrefixKey> lines;
  for (std::size_t i = 3; i < blocks.size(); i += 4) lines.push_back(blocks[i]);
  return lines;
}

// Every prompt's chunks, and an anchor each kAnchorEvery tokens.
absl::Status Fill(ChunkStore& store, LineCounts& counts, std::uint64_t files,
                  std::vector<std::vector<PrefixKey>>& prompts) {
  const CacheLayout layout = SmallLayout();
  const auto memory = std::make_shared<AlignedBuffer>(4 * layout.BlockBytes() +
                                                      StateBytes(layout));
  std::uint64_t made = 0;
  while (made < files) {
    const std::vector<KeyId> ids = Prompt(prompts.size());
    const PromptKeys keys(PrefixKey{}, ids);
    for (std::uint64_t line = kAnchorEvery; line <= kPromptTokens;
         line += kAnchorEvery) {
      ManifestWrite write;
      write.layout = layout;
      write.key_ids = std::span(ids).first(line);
      for (std::uint64_t c = 0; c < line / layout.grid_tokens; ++c) {
        ChunkWrite chunk;
        for (std::uint64_t b = 0; b < 4; ++b) {
          chunk.blocks.push_back(memory->data() + b * layout.BlockBytes());
        }
        write.chunks.push_back(std::move(chunk));
      }
      write.states = {{line, StateKind::kLine, Provenance::kGrid,
                       memory->span().last(StateBytes(layout))}};
      write.keep_alive = memory;
      const auto result = store.WriteManifest(write);
      if (!result.ok()) return result.status();
      made += result->chunks_written + 1;
    }
    const auto lines = LineKeys(keys.block_keys());
    AdmissionRequest request;
    request.grid_tokens = layout.grid_tokens;
    if (auto s = counts.Note(lines, request); !s.ok()) return s;
    prompts.emplace_back(keys.block_keys().begin(), keys.block_keys().end());
  }
  return absl::OkStatus();
}

absl::Status MakeFiles(const std::string& folder, std::uint64_t files,
                       std::vector<std::vector<PrefixKey>>& prompts) {
  UnsyncedFileSystem fs;
  if (auto s = fs.MakeDirectory(folder); !s.ok()) return s;
  auto pool = MakeIoPool({.kind = IoPoolKind::kThreads, .depth = 2});
  if (!pool.ok()) return pool.status();
  RocksDbOptions rocks;
  rocks.folder = folder + "/index";
  auto index = OpenRocksDbIndex(rocks);
  if (!index.ok()) return index.status();
  UnsyncedIndex unsynced(**index);
  StoreOptions options;
  options.folder = folder;
  options.limits.free_floor_bytes = 0;
  auto store = ChunkStore::Open({fs, **pool, unsynced, SteadyClock()}, options);
  if (!store.ok()) return store.status();
  LineCounts counts(unsynced, (*store)->service_clock());
  return Fill(**store, counts, files, prompts);
}

absl::Status MeasureLookupsInService(
    const OpenedStore& opened,
    const std::vector<std::vector<PrefixKey>>& prompts, DiskBench& bench) {
  ChunkStore& store = *opened.store;
  bench.files = store.Use().chunks + store.Use().anchors;
  if (store.sweep_report().adopted != 0) {
    return absl::InternalError("the start found files without rows");
  }
  const LineCounts counts(*opened.index, store.service_clock());
  std::mt19937_64 random(1);
  std::vector<double> lookups, lines, both;
  std::size_t found = 0;
  for (int i = 0; i < kLookups; ++i) {
    const auto& keys = prompts[random() % prompts.size()];
    LookupRequest request;
    request.block_keys = keys;
    const auto line_keys = LineKeys(keys);
    const auto begin = steady_clock::now();
    found += store.Lookup(request).size();
    const double lookup_us = MicrosecondsSince(begin);
    if (auto rows = counts.Get(line_keys); !rows.ok()) return rows.status();
    const double both_us = MicrosecondsSince(begin);
    lookups.push_back(lookup_us);
    lines.push_back(both_us - lookup_us);
    both.push_back(both_us);
  }
  if (found != kLookups * kAnchors) {
    return absl::InternalError("a lookup did not find its anchors");
  }
  bench.latency.push_back(Latency("candidates of a 128k prompt", lookups));
  bench.latency.push_back(Latency("line counts of a 128k prompt", lines));
  bench.latency.push_back(Latency("both", both));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureLookup(const DiskBenchOptions& options,
                           const std::string& folder, DiskBench& bench) {
  std::vector<std::vector<PrefixKey>> prompts;
  if (auto s = MakeFiles(folder, options.files, prompts); !s.ok()) return s;
  OpenStoreOptions open;
  open.store.folder = folder;
  open.store.limits.free_floor_bytes = 0;
  const auto start = steady_clock::now();
  auto opened = OpenStore(open);
  if (!opened.ok()) return opened.status();
  bench.start_s = MicrosecondsSince(start) / 1e6;
  if (auto s = MeasureLookupsInService(**opened, prompts, bench); !s.ok())
    return s;
  opened->reset();  // the folder is the server's now
  return MeasureLookupOverGrpc(folder, SmallLayout(), prompts, kAnchors, bench);
}

}  // namespace holdfast::bench
