// Keeps the spans of the launch at hand in device memory.
#ifndef HOLDFAST_KERNELS_CUDA_LAUNCH_TABLES_H_
#define HOLDFAST_KERNELS_CUDA_LAUNCH_TABLES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch_table.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// A model calls many operations with the same spans: they are copied when their
// content changes. Copies go through one of two pinned buffers in turn, so that
// one in flight is not overwritten. Not thread-safe.
class LaunchTables {
 public:
  static StatusOr<LaunchTables> Make(cudaStream_t stream, int max_rows,
                                     int max_positions);

  // The table of these spans, in order with the stream's work. Valid until the
  // next call.
  StatusOr<LaunchTable> Get(std::span<const RowSpan> spans);
  // ids in device memory, in order with the stream's work.
  StatusOr<const std::int32_t*> Ids(std::span<const std::int32_t> ids);

  std::size_t device_bytes() const;

 private:
  struct Slot {
    PinnedMemory pinned;
    DeviceMemory device;
    Event copied;
    bool in_flight = false;
  };

  Status Fill(std::span<const RowSpan> spans, std::size_t blocks, Slot& slot);
  // Waits until the slot's last copy has been read.
  Status Reuse(Slot& slot);
  Status CopyOut(Slot& slot, std::size_t bytes);

  cudaStream_t stream_ = nullptr;
  int max_rows_ = 0;
  Slot slots_[2];
  Slot ids_[2];
  int turn_ = 0;
  int ids_turn_ = 0;
  std::vector<RowSpan> spans_;      // of the table at hand
  std::vector<std::byte*> blocks_;  // their tables, one after the other
  LaunchTable table_;
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_LAUNCH_TABLES_H_
