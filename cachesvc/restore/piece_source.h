// Where the bytes of a restore come from.
#ifndef HOLDFAST_CACHESVC_RESTORE_PIECE_SOURCE_H_
#define HOLDFAST_CACHESVC_RESTORE_PIECE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

// Bytes that are read together.
struct SourcePiece {
  enum class What { kRows, kState };
  What what = What::kRows;
  // Its first byte in the concatenated blocks, or in the state image. A piece
  // may begin before the image and end behind what is wanted.
  std::int64_t begin = 0;
  std::uint64_t bytes = 0;
};

// Everything it needs is open or held before it exists, so nothing that is
// dropped meanwhile breaks it. Not thread-safe.
class PieceSource {
 public:
  virtual ~PieceSource() = default;

  // At most a slot each, in the order in which they are read best.
  virtual const std::vector<SourcePiece>& pieces() const = 0;
  virtual std::uint64_t block_bytes() const = 0;
  virtual std::uint64_t state_bytes() const = 0;
  // Starts to fill `memory`, which `keep_alive` owns until the source does not
  // write it any more.
  virtual absl::Status StartRead(std::size_t piece, std::span<std::byte> memory,
                                 std::shared_ptr<const void> keep_alive) = 0;
  // Waits for it; OK: every byte is what was stored. After an error nothing
  // more of the source is good.
  virtual absl::Status FinishRead(std::size_t piece, Deadline deadline) = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_RESTORE_PIECE_SOURCE_H_
