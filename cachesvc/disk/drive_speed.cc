#include "cachesvc/disk/drive_speed.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "shared/aligned_buffer.h"
#include "shared/deadlines.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::size_t kRequests = 8;
constexpr std::size_t kRequestBytes = std::size_t{2} << 20;

absl::Status Run(IoPool& pool, std::vector<IoRequest> requests,
                 std::shared_ptr<AlignedBuffer> memory, Deadline deadline) {
  const auto batch = pool.Submit(std::move(requests), std::move(memory));
  return batch.ok() ? (*batch)->WaitAll(deadline) : batch.status();
}

absl::StatusOr<double> WriteAndRead(FileSystem& fs, IoPool& pool,
                                    const std::string& path) {
  const Deadline deadline = steady_clock::now() + deadlines::kDiskProbe;
  const auto memory =
      std::make_shared<AlignedBuffer>(kRequests * kRequestBytes);
  // Zeros are what some drives do not store.
  for (std::size_t i = 0; i < memory->span().size(); ++i)
    memory->span()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  std::vector<IoRequest> writes, reads;
  {
    auto file = fs.Open(path, OpenMode::kCreate);
    if (!file.ok()) return file.status();
    absl::Status status = (*file)->Allocate(memory->span().size());
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < kRequests; ++i) {
      writes.push_back(IoRequest::Write(
          *file, i * kRequestBytes,
          memory->span().subspan(i * kRequestBytes, kRequestBytes)));
    }
    status = Run(pool, std::move(writes), memory, deadline);
    if (status.ok())
      status = Run(pool, {IoRequest::Sync(*file)}, memory, deadline);
    if (!status.ok()) return status;
  }
  auto file = fs.Open(path, OpenMode::kRead);
  if (!file.ok()) return file.status();
  for (std::size_t i = 0; i < kRequests; ++i) {
    reads.push_back(IoRequest::Read(
        *file, i * kRequestBytes,
        memory->span().subspan(i * kRequestBytes, kRequestBytes)));
  }
  const auto start = steady_clock::now();
  if (auto s = Run(pool, std::move(reads), memory, deadline); !s.ok()) return s;
  const double seconds = duration<double>(steady_clock::now() - start).count();
  return static_cast<double>(kRequests * kRequestBytes) /
         std::max(seconds, 1e-9);
}

}  // namespace

absl::StatusOr<double> MeasureDriveRead(FileSystem& fs, IoPool& pool,
                                        const std::string& folder) {
  const std::string path = folder + "/speed";
  (void)fs.Unlink(path);  // of a start that was killed
  auto rate = WriteAndRead(fs, pool, path);
  (void)fs.Unlink(path);
  return rate;
}

}  // namespace holdfast::cachesvc
