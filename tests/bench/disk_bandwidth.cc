// Restores and spills against raw direct I/O of the same sizes, in turn.
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "cachesvc/store/open_store.h"
#include "cachesvc/store/restore.h"
#include "shared/aligned_buffer.h"
#include "tests/bench/disk_bench.h"
#include "tests/bench/median.h"

namespace holdfast::bench {
namespace {

using namespace cachesvc;  // NOLINT: a bench of that part
using std::chrono::steady_clock;

constexpr std::size_t kSlots = 16;
constexpr std::chrono::seconds kLimit{300};

double Seconds(steady_clock::time_point since) {
  return std::chrono::duration<double>(steady_clock::now() - since).count();
}

// A conversation whose chunks are all new in every round.
class Conversation {
 public:
  explicit Conversation(const DiskBenchOptions& options) {
    layout_.grid_tokens = 1024;
    layout_.views = {{"K", (options.chunk_mb << 20) / 1024, 1}};
    layout_.sections = {{"h_last", 4096}};
    const std::uint64_t blocks_a_chunk = layout_.grid_tokens / kBlockTokens;
    memory_ = std::make_shared<AlignedBuffer>(
        options.chunks * blocks_a_chunk * layout_.BlockBytes() + 4096);
    for (std::size_t i = 0; i < memory_->size(); i += 64) {
      std::memcpy(memory_->data() + i, &i, sizeof(i));
    }
    ids_.resize(options.chunks * layout_.grid_tokens);
  }

  ManifestWrite Write(std::uint64_t round) {
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = round + i;
    ManifestWrite write;
    write.kind = FileKind::kSession;
    write.layout = layout_;
    write.key_ids = ids_;
    // Another each time: what replacing one costs is not the write's.
    std::memcpy(write.session_id.data(), &round, sizeof(round));
    const std::byte* at = memory_->data();
    for (std::uint64_t c = 0; c < ids_.size() / layout_.grid_tokens; ++c) {
      ChunkWrite chunk;
      for (std::uint64_t b = 0; b < layout_.grid_tokens / kBlockTokens; ++b) {
        chunk.blocks.push_back(at);
        at += layout_.BlockBytes();
      }
      write.chunks.push_back(std::move(chunk));
    }
    write.states = {{ids_.size(),
                     StateKind::kEnd,
                     Provenance::kGrid,
                     {at, StateBytes(layout_)}}};
    write.keep_alive = memory_;
    return write;
  }

  const std::vector<KeyId>& ids() const { return ids_; }
  AlignedBuffer& memory() { return *memory_; }
  std::uint64_t chunk_bytes() const {
    return layout_.grid_tokens / kBlockTokens * layout_.BlockBytes();
  }

 private:
  CacheLayout layout_;
  std::vector<KeyId> ids_;
  std::shared_ptr<AlignedBuffer> memory_;
};

// The same bytes into plain files of the same sizes, each synced.
absl::StatusOr<double> RawWrite(const std::string& folder, IoPool& pool,
                                Conversation& talk, std::uint64_t chunks) {
  FileSystem& fs = RealFileSystem();
  const auto start = steady_clock::now();
  for (std::uint64_t c = 0; c < chunks; ++c) {
    const std::string path = folder + "/raw" + std::to_string(c);
    auto file = fs.Open(path, OpenMode::kCreate);
    if (!file.ok()) return file.status();
    if (auto s = (*file)->Allocate(talk.chunk_bytes()); !s.ok()) return s;
    std::vector<IoRequest> requests;
    const auto bytes = talk.memory().span().subspan(c * talk.chunk_bytes(),
                                                    talk.chunk_bytes());
    for (std::uint64_t at = 0; at < bytes.size(); at += kIoBytes) {
      requests.push_back(IoRequest::Write(
          *file, at, bytes.subspan(at, std::min(kIoBytes, bytes.size() - at))));
    }
    auto batch = pool.Submit(std::move(requests), nullptr);
    if (!batch.ok()) return batch.status();
    if (auto s = (*batch)->WaitAll(steady_clock::now() + kLimit); !s.ok()) {
      return s;
    }
    if (auto s = (*file)->DataSync(); !s.ok()) return s;
  }
  return Seconds(start);
}

// Into the slots that a restore uses, and nothing else.
absl::StatusOr<double> RawRead(const std::string& folder, IoPool& pool,
                               Conversation& talk, std::uint64_t chunks,
                               std::span<std::byte> slots) {
  FileSystem& fs = RealFileSystem();
  const auto start = steady_clock::now();
  std::deque<std::shared_ptr<IoBatch>> flying;
  std::size_t slot = 0;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    auto file = fs.Open(folder + "/raw" + std::to_string(c), OpenMode::kRead);
    if (!file.ok()) return file.status();
    for (std::uint64_t at = 0; at < talk.chunk_bytes(); at += kIoBytes) {
      if (flying.size() == kSlots) {
        if (auto s = flying.front()->WaitAll(steady_clock::now() + kLimit);
            !s.ok()) {
          return s;
        }
        flying.pop_front();
      }
      const auto memory = slots.subspan(
          slot++ % kSlots * kIoBytes,
          std::min<std::uint64_t>(kIoBytes, talk.chunk_bytes() - at));
      auto batch = pool.Submit({IoRequest::Read(*file, at, memory)}, nullptr);
      if (!batch.ok()) return batch.status();
      flying.push_back(*std::move(batch));
    }
  }
  for (const auto& batch : flying) {
    if (auto s = batch->WaitAll(steady_clock::now() + kLimit); !s.ok()) {
      return s;
    }
  }
  return Seconds(start);
}

// As a service restores: open, check, read into slots, check, copy out.
absl::StatusOr<double> TimedRestore(ChunkStore& store, const FileKey& key,
                                    const Conversation& talk,
                                    std::span<std::byte> slots,
                                    AlignedBuffer& target) {
  const Deadline deadline = steady_clock::now() + kLimit;
  const auto start = steady_clock::now();
  RestoreRequest request;
  request.manifest = key;
  request.position = talk.ids().size();
  request.key_ids = talk.ids();
  auto restore = Restore::Open(store, request, deadline);
  if (!restore.ok()) return restore.status();
  const auto& pieces = (*restore)->pieces();
  std::size_t begun = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (; begun < pieces.size() && begun < i + kSlots; ++begun) {
      if (auto s = (*restore)->StartRead(
              begun, slots.subspan(begun % kSlots * kIoBytes, kIoBytes),
              nullptr);
          !s.ok()) {
        return s;
      }
    }
    if (auto s = (*restore)->FinishRead(i, deadline); !s.ok()) return s;
    std::memcpy(target.data(), slots.data() + i % kSlots * kIoBytes,
                pieces[i].bytes);
  }
  return Seconds(start);
}

absl::Status MeasurePool(const DiskBenchOptions& options,
                         const std::string& folder, IoPoolKind kind,
                         DiskBench& bench) {
  AlignedBuffer slots(kSlots * kIoBytes);
  AlignedBuffer target(kIoBytes);
  OpenStoreOptions open;
  open.store.folder = folder;
  open.store.limits.free_floor_bytes = 0;
  open.pool.kind = kind;
  open.pool.fixed_buffers = {slots.span()};
  auto opened = OpenStore(open);
  if (!opened.ok()) return opened.status();
  ChunkStore& store = *(*opened)->store;
  IoPool& pool = *(*opened)->pool;
  Conversation talk(options);
  const std::string raw_folder = folder + "/raw";
  if (auto s = RealFileSystem().MakeDirectory(raw_folder); !s.ok()) return s;
  const double mb =
      static_cast<double>(options.chunks * talk.chunk_bytes()) / 1e6;
  std::vector<double> spill, raw_write, spill_ratio;
  std::vector<double> restore, raw_read, restore_ratio;
  for (int round = 0; round <= options.rounds; ++round) {
    for (std::uint64_t c = 0; c < options.chunks; ++c) {
      (void)RealFileSystem().Unlink(raw_folder + "/raw" + std::to_string(c));
    }
    const auto write = talk.Write(1'000'000ull * static_cast<unsigned>(round));
    const auto start = steady_clock::now();
    const auto written = store.WriteManifest(write);
    if (!written.ok()) return written.status();
    const double spill_s = Seconds(start);
    const auto raw_write_s = RawWrite(raw_folder, pool, talk, options.chunks);
    if (!raw_write_s.ok()) return raw_write_s.status();
    const auto restore_s =
        TimedRestore(store, written->file_key, talk, slots.span(), target);
    if (!restore_s.ok()) return restore_s.status();
    const auto raw_read_s =
        RawRead(raw_folder, pool, talk, options.chunks, slots.span());
    if (!raw_read_s.ok()) return raw_read_s.status();
    if (auto s = store.Evict(std::span(&written->file_key, 1)); !s.ok()) {
      return s.status();
    }
    if (round == 0) continue;  // the first touches all memory
    spill.push_back(mb / spill_s);
    raw_write.push_back(mb / *raw_write_s);
    spill_ratio.push_back(*raw_write_s / spill_s);
    restore.push_back(mb / *restore_s);
    raw_read.push_back(mb / *raw_read_s);
    restore_ratio.push_back(*raw_read_s / *restore_s);
  }
  bench.bandwidth.push_back({"restore", pool.Describe(), Median(restore),
                             Median(raw_read), Median(restore_ratio)});
  bench.bandwidth.push_back({"spill", pool.Describe(), Median(spill),
                             Median(raw_write), Median(spill_ratio)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureBandwidth(const DiskBenchOptions& options,
                              const std::string& folder, DiskBench& bench) {
  if (auto s = MeasurePool(options, folder + "-best", IoPoolKind::kBest, bench);
      !s.ok()) {
    return s;
  }
  return MeasurePool(options, folder + "-threads", IoPoolKind::kThreads, bench);
}

}  // namespace holdfast::bench
