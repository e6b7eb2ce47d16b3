// The cache service's configuration.
#ifndef HOLDFAST_CACHESVC_CONFIG_H_
#define HOLDFAST_CACHESVC_CONFIG_H_

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

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
  std::string log_level = "info";

  // The first bad value, named by its flag.
  absl::Status Validate() const;
  std::uint64_t staging_bytes() const { return staging_mb << 20; }
  std::uint32_t staging_slots() const {
    return static_cast<std::uint32_t>(staging_bytes() / kStagingSlotBytes);
  }
};

// `config` outlives `app`.
void AddFlags(CLI::App& app, Config& config);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CONFIG_H_
