// Weights in panels of 32 output columns, still in their storage format.
//
// A panel of an unquantised type is [k][32 columns]. A panel of a quantised
// type is a run of blocks of 32 k each:
//   Q8_0  f16 scale[32], int8 value[32 k][32 columns]
//   Q4_0  f16 scale[32], nibbles[16][32]: byte [i][column] holds k = 2i in its
//         low half, 2i + 1 in its high half
//   Q4_1  f16 scale[32], f16 minimum[32], nibbles as Q4_0
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

// Bytes of a panel from its start to k; for quantised types k is a multiple
// of 32.
constexpr std::size_t PanelBytes(WeightType type, std::int64_t k) {
  const auto count = static_cast<std::size_t>(k);
  switch (type) {
    case WeightType::kF32:
      return count * kPanelColumns * 4;
    case WeightType::kF16:
    case WeightType::kBF16:
      return count * kPanelColumns * 2;
    case WeightType::kQ8_0:
      return count / kQuantBlock * (64 + 32 * kPanelColumns);
    case WeightType::kQ4_0:
      return count / kQuantBlock * (64 + 16 * kPanelColumns);
    case WeightType::kQ4_1:
      return count / kQuantBlock * (128 + 16 * kPanelColumns);
  }
  return 0;
}

// 32 output columns, or what is left of a part.
struct Panel {
  WeightType type = WeightType::kF32;
  int columns = 0;
  std::int64_t first_column = 0;
  const std::byte* data = nullptr;
};

class PackedMatrix final : public Matrix {
 public:
  static StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      std::span<const WeightTensor> parts, ThreadPool& pool);

  int panels() const { return panels_; }
  Panel panel(int index) const;
  // The panel that holds output column `column`.
  Panel PanelOf(std::int64_t column) const;

 private:
  struct Part {
    WeightType type = WeightType::kF32;
    std::int64_t rows = 0;
    std::int64_t first_column = 0;
    int first_panel = 0;
    std::size_t offset = 0;
  };

  Panel PanelIn(const Part& part, int index) const;

  std::vector<Part> parts_;
  int panels_ = 0;
  HostMemory memory_;
};

// Why a tensor cannot be used, with its name, type and shape.
Status CheckTensor(const WeightTensor& tensor);
std::string DescribeTensor(const WeightTensor& tensor);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_PACKED_MATRIX_H_
