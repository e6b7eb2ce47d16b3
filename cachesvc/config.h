// The cache service's configuration.
#ifndef HOLDFAST_CACHESVC_CONFIG_H_
#define HOLDFAST_CACHESVC_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "cachesvc/disk/disk_tier.h"

namespace holdfast::cachesvc {

// A slot takes one request of direct I/O: requests of 1 to 4 MiB reach an
// NVMe drive's bandwidth.
inline constexpr std::uint64_t kStagingSlotBytes = std::uint64_t{2} << 20;

struct Config {
  // Of all daemons' sockets; made with mode 0700.
  std::string run_dir = "/run/holdfast";
  // MiB of the staging memory that an attached engine maps; whole slots. Takes
  // memory only where it is used.
  std::uint64_t staging_mb = 64;

  // GiB of memory for snapshots of conversations and heads; 0: none is kept.
  double store_gb = 2;
  double store_entry_gb = 1;  // GiB; of one snapshot

  // Of everything on disk; ours alone, mode 0700. Empty: nothing is kept there.
  std::string cache_dir;
  // Heads of prompts, for restarts and new sessions.
  bool disk_cache = true;
  double disk_gb = 50;       // 10^9 bytes; at most
  double disk_ttl_days = 7;  // an entry unused for so long goes
  double disk_free_gb = 50;  // 10^9 bytes; stay free on the file system
  // A floor below the default one is refused without this.
  bool allow_small_free_space = false;
  std::uint64_t disk_min_tokens = 4096;  // of a prompt that is written
  std::uint32_t admit_after = 2;  // times a line is read cold before it is kept
  double disk_write_gb_s = 1;  // 10^9 bytes a second, beside a running engine
  // Whole conversations, written at a planned stop.
  bool session_spill = true;
  double spill_gb = 40;  // 10^9 bytes; at most
  // io_uring, threads (pread and pwrite), or auto: io_uring where it works.
  std::string disk_io = "auto";

  std::string log_level = "info";

  // The first bad value, named by its flag.
  absl::Status Validate() const;
  // Nothing when nothing is kept on disk.
  std::optional<DiskOptions> disk() const;
  std::uint64_t store_bytes() const {
    return static_cast<std::uint64_t>(store_gb * (1 << 30));
  }
  std::uint64_t store_entry_bytes() const {
    return static_cast<std::uint64_t>(store_entry_gb * (1 << 30));
  }
  std::uint64_t staging_bytes() const { return staging_mb << 20; }
  std::uint32_t staging_slots() const {
    return static_cast<std::uint32_t>(staging_bytes() / kStagingSlotBytes);
  }
};

// `config` outlives `app`.
void AddFlags(CLI::App& app, Config& config);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CONFIG_H_
