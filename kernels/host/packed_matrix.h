// Weights in panels of 32 output columns, still in their storage format.
//
// A panel of an unquantised type is [k][32 columns]. A panel of a quantised
// type is a run of blocks (quant_format.h), `width` 32 columns wide. Panels of
// Q4_0, Q4_1 and Q4_K come in pairs that lie side by side in blocks of width
// 64, so that both can be read as one stream of memory; the last of an odd
// number is alone.
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
#include "kernels/host/quant_format.h"
#include "kernels/status.h"

namespace holdfast::kernels {

inline constexpr int kPanelColumns = 32;

// One row over one panel of plain nibbles waits for additions more than for
// memory, so these are multiplied two at a time. For Q8_0 memory is the limit,
// for the others the widening.
constexpr bool IsPaired(WeightType type) {
  return FormatOf(type).nibbles && FormatOf(type).high_bits == 0;
}

// Bytes of a column of `cols` numbers in a panel.
constexpr std::size_t ColumnBytes(WeightType type, std::int64_t cols) {
  const auto count = static_cast<std::size_t>(cols);
  const QuantFormat format = FormatOf(type);
  if (format.block == 0) return count * (type == WeightType::kF32 ? 4 : 2);
  const std::size_t blocks = (count + format.block - 1) / format.block;
  return blocks * format.header_bytes +
         count / format.group * QuantGroupBytes(type);
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

class ThreadBalance;
class ThreadPool;
class WeightMemory;

class PackedMatrix final : public Matrix {
 public:
  static StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      std::span<const WeightTensor> parts, WeightMemory& memory,
      ThreadPool& pool);

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

  // Where pair `index` begins; of pairs(), what is behind the last.
  const std::byte* PairData(int index) const;
  // The same of the first pair that is `thread`'s own in the matrix that was
  // packed after this one, as a rule the one that is used after it; null: there
  // is none. Memory to be fetched, not to be read: that matrix may be gone.
  const std::byte* ShareAfter(int thread, const ThreadPool& pool) const;

  // Of products of few rows, whose loops are over two indices a pair.
  ThreadBalance& balance() const { return *balance_; }

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

  friend class WeightMemory;
  // Where another matrix is, or was: only to be fetched, not to be read.
  struct Place {
    const PackedMatrix* matrix = nullptr;
    const Part* parts = nullptr;
    std::size_t parts_bytes = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    int pairs = 0;
    std::shared_ptr<const ThreadBalance> balance;
  };

  Panel PanelIn(const Part& part, int index) const;

  std::vector<Part> parts_;
  int panels_ = 0;
  int pairs_ = 0;
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<Place> follower_;  // filled when that one is packed
  std::shared_ptr<ThreadBalance> balance_;
};

// Memory of a backend's matrices, one after the other in the order of their
// packing.
class WeightMemory {
 private:
  friend class PackedMatrix;

  HostArena arena_;
  std::shared_ptr<PackedMatrix::Place> after_last_;
};

// Why a tensor cannot be used, with its name, type and shape.
Status CheckTensor(const WeightTensor& tensor);
std::string DescribeTensor(const WeightTensor& tensor);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_PACKED_MATRIX_H_
