#include "cachesvc/device/device_pool.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

// One is written to the disk while the next is filled, or a snapshot is.
constexpr std::size_t kPieces = 2;
// A chunk of any model is far below; it bounds what an engine makes us take.
constexpr std::uint64_t kMostPieceBytes = std::uint64_t{1} << 30;

absl::Status CheckOptions(const DevicePool::Options& options) {
  const auto& pool = options.pool;
  std::uint64_t blocks = 0;
  if (options.block_bytes == 0 || pool.block_count == 0 ||
      __builtin_mul_overflow(options.block_bytes, pool.block_count, &blocks) ||
      blocks > pool.check_offset || pool.check_offset > pool.memory.bytes ||
      kDeviceCheckBytes > pool.memory.bytes - pool.check_offset) {
    return absl::InvalidArgumentError(fmt::format(
        "{} blocks of {} bytes and a check at {} are not in {} bytes of a "
        "device",
        pool.block_count, options.block_bytes, pool.check_offset,
        pool.memory.bytes));
  }
  if (options.piece_blocks == 0 ||
      options.piece_blocks > kMostPieceBytes / options.block_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("a chunk of {} blocks of {} bytes is too large to stage",
                    options.piece_blocks, options.block_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DevicePool::Open(const Options& options, DeviceMapper& mapper,
                              Mapping& mapping, DeviceCheck& check) {
  auto memory = mapper.Map(options.pool.memory);
  if (!memory.ok()) return memory.status();
  mapping.memory = *std::move(memory);
  for (const std::span<std::byte> piece : mapping.staging->pieces()) {
    auto pinned = mapper.Pin(piece);
    if (!pinned.ok()) {
      mapping.not_pinned = std::string(pinned.status().message());
      break;  // copies go through it all the same
    }
    mapping.pins.push_back(*std::move(pinned));
  }
  const auto piece = mapping.staging->Take(SteadyClock().Now());
  const MappedDeviceMemory::Part part = {options.pool.check_offset,
                                         {piece.get(), check.size()}};
  if (auto s = mapping.memory->Copy({&part, 1}); !s.ok()) return s;
  std::copy_n(reinterpret_cast<const std::uint8_t*>(piece.get()), check.size(),
              check.begin());
  return absl::OkStatus();
}

absl::StatusOr<DevicePool::Mapped> DevicePool::Map(
    const Options& options, std::shared_ptr<DeviceMapper> mapper,
    std::shared_ptr<DeviceQueue> queue, Deadline deadline) {
  if (auto s = CheckOptions(options); !s.ok()) return s;
  auto engine = ProcessWatch::Open(options.engine_pid,
                                   options.pool.memory.exporter_start);
  if (!engine.ok()) return engine.status();
  const auto mapping = std::make_shared<Mapping>();
  mapping->staging = std::make_shared<RowStaging>(
      kPieces, options.piece_blocks * options.block_bytes);
  struct Result {
    absl::Status status;
    DeviceCheck check = {};
  };
  const auto result = std::make_shared<Result>();
  const bool done = queue->Run(
      [options, mapper = std::move(mapper), mapping, result] {
        result->status = Open(options, *mapper, *mapping, result->check);
      },
      deadline);
  // From here on its end unmaps what is, or will be, mapped.
  std::shared_ptr<DevicePool> pool(
      new DevicePool(options, *std::move(engine), std::move(queue), mapping));
  if (!done) {
    return absl::DeadlineExceededError("the device did not answer in time");
  }
  if (!result->status.ok()) return result->status;
  return Mapped{.pool = std::move(pool),
                .check = result->check,
                .staging = mapping->not_pinned.empty()
                               ? "pinned"
                               : "not pinned: " + mapping->not_pinned};
}

DevicePool::DevicePool(const Options& options, ProcessWatch engine,
                       std::shared_ptr<DeviceQueue> queue,
                       std::shared_ptr<Mapping> mapping)
    : options_(options),
      engine_(std::move(engine)),
      queue_(std::move(queue)),
      staging_(mapping->staging),
      mapping_(std::move(mapping)) {}

absl::StatusOr<DevicePool::Copies> DevicePool::Copy(
    std::span<const std::uint32_t> blocks, Deadline deadline) {
  if (blocks.size() > options_.piece_blocks ||
      std::ranges::any_of(blocks, [this](std::uint32_t block) {
        return block >= block_count();
      })) {
    return absl::InvalidArgumentError(
        fmt::format("{} blocks are not those of a piece", blocks.size()));
  }
  if (const std::string failed = failure(); !failed.empty()) {
    return absl::UnavailableError(failed);
  }
  const auto gone = [] {
    return absl::AbortedError("the engine has gone: its device memory with it");
  };
  if (closed_) return gone();
  std::shared_ptr<std::byte> piece = staging_->Take(deadline);
  if (piece == nullptr) {
    return absl::DeadlineExceededError("no staging for rows came free");
  }
  Copies copies;
  std::vector<MappedDeviceMemory::Part> parts;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::byte* const to = piece.get() + i * options_.block_bytes;
    parts.push_back({blocks[i] * options_.block_bytes,
                     {to, static_cast<std::size_t>(options_.block_bytes)}});
    copies.blocks.push_back(to);
  }
  const absl::Status copied = RunCopy(std::move(parts), piece);
  // An engine that died took the memory with it, and an error is its doing.
  if (closed_ || !engine_.HasMemory()) return gone();
  if (!copied.ok()) return Failed(std::string(copied.message()));
  copies.keep_alive = std::move(piece);
  return copies;
}

absl::Status DevicePool::RunCopy(std::vector<MappedDeviceMemory::Part> parts,
                                 std::shared_ptr<std::byte> piece) {
  const auto bytes = parts.size() * options_.block_bytes;
  const auto limit = options_.copy_deadline(bytes);
  const auto result = std::make_shared<absl::Status>(
      absl::AbortedError("the device's memory is unmapped"));
  // A copy that hangs keeps its piece: it may still write there.
  const bool done = queue_->Run(
      [mapping = mapping_, parts = std::move(parts), piece, result] {
        if (mapping->memory != nullptr) *result = mapping->memory->Copy(parts);
      },
      SteadyClock().Now() + limit);
  if (!done) {
    return absl::DeadlineExceededError(fmt::format(
        "a copy of {} bytes did not end within {} ms", bytes, limit.count()));
  }
  return *result;
}

std::string DevicePool::failure() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

absl::Status DevicePool::Failed(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failed_.empty()) {
    failed_ = fmt::format("the device failed: {}", why);
    spdlog::error("device pool of engine pid {}: {}", options_.engine_pid,
                  failed_);
  }
  return absl::UnavailableError(failed_);
}

void DevicePool::Close() {
  if (closed_.exchange(true)) return;
  queue_->Post([mapping = mapping_, pid = options_.engine_pid] {
    if (mapping->memory == nullptr) return;
    mapping->memory.reset();
    mapping->pins.clear();
    spdlog::info("device pool of engine pid {} unmapped", pid);
  });
}

}  // namespace holdfast::cachesvc
