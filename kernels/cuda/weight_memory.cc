#include "kernels/cuda/weight_memory.h"

#include <algorithm>
#include <utility>

namespace holdfast::kernels::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMostPieceBytes = std::size_t{256} << 20;

// Whether a piece that is filled with such parts leaves less of it for each
// than memory of its own does.
bool WastesLessInAPiece(std::size_t bytes, std::size_t piece_bytes) {
  if (bytes > piece_bytes) return false;
  const std::size_t parts = piece_bytes / bytes;
  return piece_bytes % bytes / parts < DeviceMemory::Rounded(bytes) - bytes;
}

}  // namespace

StatusOr<WeightMemory> WeightPieces::Take(std::size_t bytes,
                                          std::string_view what) {
  WeightMemory memory;
  memory.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t piece_bytes =
      std::clamp(taken_ / 8 / kDeviceGranule * kDeviceGranule, kDeviceGranule,
                 kMostPieceBytes);
  taken_ += memory.bytes;
  if (memory.bytes > unfilled_bytes()) {
    const bool own = !WastesLessInAPiece(memory.bytes, piece_bytes);
    HF_ASSIGN_OR_RETURN(
        DeviceMemory made,
        DeviceMemory::Make(own ? memory.bytes : piece_bytes, what));
    auto piece = std::make_shared<const DeviceMemory>(std::move(made));
    if (own) {
      memory.data = piece->data();
      memory.bytes = piece->bytes();
      memory.piece = std::move(piece);
      return memory;
    }
    piece_ = std::move(piece);
    used_ = 0;
  }
  memory.data = piece_->data() + used_;
  memory.piece = piece_;
  used_ += memory.bytes;
  return memory;
}

}  // namespace holdfast::kernels::cuda
