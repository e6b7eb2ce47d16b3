// Weights in panels of 32 output columns, still in their storage format.
//
// A panel of an unquantised type is [k][32 columns]. A panel of a quantised
// type is a run of blocks of 32 k each, `width` 32 columns wide:
//   Q8_0  f16 scale[width], int8 value[32 k][width]
//   Q4_0  f16 scale[width], nibbles[16][width]: byte [i][column] holds k = 2i
//         in its low half, 2i + 1 in its high half
//   Q4_1  f16 scale[width], f16 minimum[width], nibbles as Q4_0
// Panels of Q4_0 and Q4_1 come in pairs that lie side by side in blocks of
// width 64, so that both can be read as one stream of memory; the last of an
// odd number is alone.
// Columns past a part's end are zeros.
#ifndef HOLDFAST_KERNELS_HOST_PACKED_MATRIX_H_
#define HOLDFAST_KERNELS_HOST_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/memory.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels {

inline constexpr int kPanelColumns = 32;
inline constexpr int kQuantBlock = 32;

constexpr bool IsQuantised(WeightType type) {
  return type == WeightType::kQ8_0 || type == WeightType::kQ4_0 ||
         type == WeightType::kQ4_1;
}

// One row over one panel of nibbles waits for additions more than for memory,
// so these are multiplied two at a time. For Q8_0 memory is the limit.
constexpr bool IsPaired(WeightType type) {
  return type == WeightType::kQ4_0 || type == WeightType::kQ4_1;
}

// Bytes of a column's scales and minima in a block, and of its integers.
constexpr std::size_t QuantHeaderBytes(WeightType type) {
  return type == WeightType::kQ4_1 ? 4 : 2;
}
constexpr std::size_t QuantBlockBytes(WeightType type) {
  return QuantHeaderBytes(type) + (type == WeightType::kQ8_0 ? 32 : 16);
}

// Bytes of `k` numbers of one column in a panel; for quantised types k is a
// multiple of 32.
constexpr std::size_t ColumnBytes(WeightType type, std::int64_t k) {
  const auto count = static_cast<std::size_t>(k);
  if (IsQuantised(type)) return count / kQuantBlock * QuantBlockBytes(type);
  return count * (type == WeightType::kF32 ? 4 : 2);
}

// 32 output columns, or what is left of a part.
struct Panel {
  WeightType type = WeightType::kF32;
  int columns = 0;
  std::int64_t first_column = 0;
  const std::byte* data = nullptr;
  // Of quantised types: where in its pair this panel is.
  int width = kPanelColumns;
  int column = 0;
};

class PackedMatrix final : public Matrix {
 public:
  static StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      std::span<const WeightTensor> parts, HostArena& arena, ThreadPool& pool);

  int panels() const { return panels_; }
  Panel panel(int index) const;
  // Two consecutive panels of a part, or its last one, share an index here.
  int pairs() const { return pairs_; }
  struct Pair {
    Panel panels[2];
    int count = 0;
  };
  Pair pair(int index) const;
  // The panel that holds output column `column`.
  Panel PanelOf(std::int64_t column) const;

 private:
  struct Part {
    WeightType type = WeightType::kF32;
    std::int64_t rows = 0;
    std::int64_t first_column = 0;
    int first_panel = 0;
    int panels = 0;
    int first_pair = 0;
    std::size_t offset = 0;
  };

  Panel PanelIn(const Part& part, int index) const;

  std::vector<Part> parts_;
  int panels_ = 0;
  int pairs_ = 0;
  std::shared_ptr<std::byte> memory_;
};

// Why a tensor cannot be used, with its name, type and shape.
Status CheckTensor(const WeightTensor& tensor);
std::string DescribeTensor(const WeightTensor& tensor);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_PACKED_MATRIX_H_
