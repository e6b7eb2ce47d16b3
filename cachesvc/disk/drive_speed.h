// How fast the drive reads, before any restore was measured.
#ifndef HOLDFAST_CACHESVC_DISK_DRIVE_SPEED_H_
#define HOLDFAST_CACHESVC_DISK_DRIVE_SPEED_H_

#include <string>

#include "absl/status/statusor.h"
#include "cachesvc/io/io_pool.h"
#include "shared/fs/file_system.h"

namespace holdfast::cachesvc {

// Bytes a second, around the page cache, of a file of 16 MiB that is written
// into the folder for this and removed. Bounded by deadlines::kDiskProbe.
absl::StatusOr<double> MeasureDriveRead(FileSystem& fs, IoPool& pool,
                                        const std::string& folder);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DISK_DRIVE_SPEED_H_
