#include "cachesvc/config.h"

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

constexpr std::uint64_t kSlotMb = kStagingSlotBytes >> 20;
constexpr std::uint64_t kMaxStagingMb = std::uint64_t{1} << 20;  // 1 TiB

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
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Config& config) {
  app.add_option("--run-dir", config.run_dir, "folder of the daemons' sockets")
      ->capture_default_str();
  app.add_option("--staging-mb", config.staging_mb,
                 "MiB of memory that an attached engine maps for restores")
      ->capture_default_str();
  app.add_option("--log-level", config.log_level,
                 "trace, debug, info, warn or error")
      ->capture_default_str();
  app.set_version_flag("--version", HOLDFAST_VERSION);
}

}  // namespace holdfast::cachesvc
