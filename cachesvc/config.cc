#include "cachesvc/config.h"

#include "fmt/format.h"
#include "shared/flag_checks.h"

namespace holdfast::cachesvc {
namespace {

constexpr std::uint64_t kSlotMb = kStagingSlotBytes >> 20;
constexpr std::uint64_t kMaxStagingMb = std::uint64_t{1} << 20;  // 1 TiB
constexpr double kMaxGb = 1e9;
constexpr double kMaxDays = 36500;
constexpr double kGb = 1e9;
constexpr double kDay = 86400;

IoPoolKind IoKindOf(const std::string& io) {
  if (io == "io_uring") return IoPoolKind::kUring;
  return io == "threads" ? IoPoolKind::kThreads : IoPoolKind::kBest;
}

// Of a flag's default, which CLI11 takes for false where nothing says so.
const char* Word(bool value) { return value ? "true" : "false"; }

std::uint64_t Bytes(double gb) { return static_cast<std::uint64_t>(gb * kGb); }

absl::Status ValidateDisk(const Config& config) {
  if (auto s = FirstBad(
          {CheckRange("--store-gb", config.store_gb, 0, kMaxGb),
           CheckRange("--store-entry-gb", config.store_entry_gb, 0, kMaxGb),
           CheckRange("--disk-gb", config.disk_gb, 0, kMaxGb),
           CheckRange("--disk-ttl-days", config.disk_ttl_days, 0, kMaxDays),
           CheckRange("--disk-free-gb", config.disk_free_gb, 0, kMaxGb),
           CheckRange("--disk-write-gb-s", config.disk_write_gb_s, 0.001,
                      kMaxGb),
           CheckRange("--spill-gb", config.spill_gb, 0, kMaxGb),
           CheckRange("--admit-after", config.admit_after, 1, 1000),
           CheckChoice("--disk-io", config.disk_io,
                       {"auto", "io_uring", "threads"})});
      !s.ok()) {
    return s;
  }
  const double floor =
      static_cast<double>(StoreLimits().free_floor_bytes) / kGb;
  if (config.disk_free_gb < floor && !config.allow_small_free_space) {
    return absl::InvalidArgumentError(fmt::format(
        "--disk-free-gb {}: less than {} needs --allow-small-free-space",
        config.disk_free_gb, floor));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Config::Validate() const {
  if (run_dir.empty())
    return absl::InvalidArgumentError("--run-dir: must not be empty");
  if (staging_mb == 0 || staging_mb > kMaxStagingMb ||
      staging_mb % kSlotMb != 0) {
    return absl::InvalidArgumentError(
        fmt::format("--staging-mb {}: must be a multiple of {}, at most {}",
                    staging_mb, kSlotMb, kMaxStagingMb));
  }
  return ValidateDisk(*this);
}

std::optional<DiskOptions> Config::disk() const {
  if (cache_dir.empty() || !(disk_cache || session_spill)) return std::nullopt;
  DiskOptions options;
  options.folder = cache_dir;
  options.limits.disk_budget_bytes = Bytes(disk_gb);
  options.limits.spill_budget_bytes = Bytes(spill_gb);
  options.limits.ttl_s = static_cast<std::uint64_t>(disk_ttl_days * kDay);
  options.limits.free_floor_bytes = Bytes(disk_free_gb);
  options.disk_cache = disk_cache;
  options.session_spill = session_spill;
  options.admission = {.min_tokens = disk_min_tokens,
                       .admit_after = admit_after};
  options.write_bytes_per_s = Bytes(disk_write_gb_s);
  options.io = IoKindOf(disk_io);
  return options;
}

void AddFlags(CLI::App& app, Config& config) {
  app.add_option("--run-dir", config.run_dir, "folder of the daemons' sockets")
      ->capture_default_str();
  app.add_option("--staging-mb", config.staging_mb,
                 "MiB of memory that an attached engine maps for restores")
      ->capture_default_str();
  app.add_option("--store-gb", config.store_gb,
                 "memory for snapshots, in GiB; 0: none are kept")
      ->capture_default_str();
  app.add_option("--store-entry-gb", config.store_entry_gb,
                 "largest snapshot, in GiB")
      ->capture_default_str();
  app.add_option("--cache-dir", config.cache_dir,
                 "folder of everything kept on disk; empty: nothing is")
      ->capture_default_str();
  app.add_flag("--disk-cache,!--no-disk-cache", config.disk_cache,
               "keep heads of prompts on disk")
      ->default_str(Word(config.disk_cache));
  app.add_option("--disk-gb", config.disk_gb, "for them, in 10^9 bytes")
      ->capture_default_str();
  app.add_option("--disk-ttl-days", config.disk_ttl_days,
                 "days of service after which an unused one goes")
      ->capture_default_str();
  app.add_option("--disk-free-gb", config.disk_free_gb,
                 "10^9 bytes that stay free on the file system")
      ->capture_default_str();
  app.add_flag("--allow-small-free-space", config.allow_small_free_space,
               "accept a --disk-free-gb below 50: for tests and demos");
  app.add_option("--disk-min-tokens", config.disk_min_tokens,
                 "prompts below are not written")
      ->capture_default_str();
  app.add_option("--admit-after", config.admit_after,
                 "times a grid line is read cold before it is written")
      ->capture_default_str();
  app.add_option("--disk-write-gb-s", config.disk_write_gb_s,
                 "rate of writing beside a running engine, 10^9 bytes/s")
      ->capture_default_str();
  app.add_flag("--session-spill,!--no-session-spill", config.session_spill,
               "keep conversations on disk at a planned stop, and before they "
               "lose rows that memory cannot keep")
      ->default_str(Word(config.session_spill));
  app.add_option("--spill-gb", config.spill_gb,
                 "for conversations, in 10^9 bytes")
      ->capture_default_str();
  app.add_option("--disk-io", config.disk_io,
                 "auto, io_uring or threads (pread, pwrite)")
      ->capture_default_str();
  app.add_option("--log-level", config.log_level,
                 "trace, debug, info, warn or error")
      ->capture_default_str();
  app.set_version_flag("--version", HOLDFAST_VERSION);
}

}  // namespace holdfast::cachesvc
