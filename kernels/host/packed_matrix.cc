#include "kernels/host/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace holdfast::kernels {
namespace {

void CopyScale(const std::byte* file, int column, std::byte* scales) {
  std::memcpy(scales + column * 2, file, 2);
}

// GGUF's nibbles: low half element i, high half element i + 16. Ours: low half
// element 2i, high half 2i + 1, so that one load serves two consecutive k.
void PackNibbles(const std::byte* file, int column, std::byte* panel) {
  const auto element = [file](int k) {
    const auto byte = static_cast<unsigned>(file[k % 16]);
    return k < 16 ? byte & 15u : byte >> 4;
  };
  for (int i = 0; i < 16; ++i) {
    panel[i * kPanelColumns + column] =
        static_cast<std::byte>(element(2 * i) | (element(2 * i + 1) << 4));
  }
}

void PackQuantisedBlock(WeightType type, const std::byte* file, int column,
                        std::byte* block) {
  CopyScale(file, column, block);
  switch (type) {
    case WeightType::kQ8_0:
      for (int k = 0; k < kQuantBlock; ++k) {
        block[64 + k * kPanelColumns + column] = file[2 + k];
      }
      return;
    case WeightType::kQ4_0:
      PackNibbles(file + 2, column, block + 64);
      return;
    default:  // Q4_1
      CopyScale(file + 2, column, block + 64);
      PackNibbles(file + 4, column, block + 128);
      return;
  }
}

void PackRow(WeightType type, const std::byte* row, std::int64_t cols,
             int column, std::byte* panel) {
  if (!IsQuantised(type)) {
    const std::size_t bytes = type == WeightType::kF32 ? 4 : 2;
    for (std::int64_t k = 0; k < cols; ++k) {
      std::memcpy(panel + (k * kPanelColumns + column) * bytes, row + k * bytes,
                  bytes);
    }
    return;
  }
  const std::size_t block_bytes = WeightRowBytes(type, kQuantBlock);
  for (std::int64_t k = 0; k < cols; k += kQuantBlock) {
    PackQuantisedBlock(type, row + k / kQuantBlock * block_bytes, column,
                       panel + PanelBytes(type, k));
  }
}

int PanelCount(std::int64_t rows) {
  return static_cast<int>((rows + kPanelColumns - 1) / kPanelColumns);
}

}  // namespace

std::string DescribeTensor(const WeightTensor& tensor) {
  return "tensor " + tensor.name + " (" + WeightTypeName(tensor.type) + ", " +
         std::to_string(tensor.rows) + " x " + std::to_string(tensor.cols) +
         ")";
}

Status CheckTensor(const WeightTensor& tensor) {
  const auto fail = [&tensor](const std::string& why) {
    return InvalidArgument(DescribeTensor(tensor) + ": " + why);
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (tensor.rows <= 0 || tensor.cols <= 0 || tensor.rows > kMost ||
      tensor.cols > kMost) {
    return fail("its shape must be positive and below 2^31");
  }
  if (tensor.data == nullptr) return fail("it has no data");
  if (WeightRowBytes(tensor.type, tensor.cols) == 0) {
    return fail("rows of this type must be a multiple of 32 numbers");
  }
  if (tensor.row_order.empty()) return OkStatus();
  if (static_cast<std::int64_t>(tensor.row_order.size()) != tensor.rows) {
    return fail("row order of " + std::to_string(tensor.row_order.size()) +
                " entries");
  }
  for (const std::int32_t row : tensor.row_order) {
    if (row < 0 || row >= tensor.rows) {
      return fail("row order names row " + std::to_string(row));
    }
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<PackedMatrix>> PackedMatrix::Pack(
    std::span<const WeightTensor> parts, ThreadPool& pool) {
  if (parts.empty()) return InvalidArgument("a matrix of no tensors");
  auto matrix = std::make_unique<PackedMatrix>();
  std::size_t bytes = 0;
  for (const WeightTensor& tensor : parts) {
    HF_RETURN_IF_ERROR(CheckTensor(tensor));
    if (tensor.cols != parts[0].cols) {
      return InvalidArgument(DescribeTensor(tensor) +
                             ": cannot be joined with " +
                             DescribeTensor(parts[0]));
    }
    matrix->parts_.push_back(
        {tensor.type, tensor.rows, matrix->rows_, matrix->panels_, bytes});
    const int panels = PanelCount(tensor.rows);
    matrix->rows_ += tensor.rows;
    matrix->panels_ += panels;
    bytes += panels * PanelBytes(tensor.type, tensor.cols);
  }
  matrix->cols_ = parts[0].cols;
  matrix->bytes_ = bytes;
  HF_ASSIGN_OR_RETURN(matrix->memory_,
                      HostMemory::Make(bytes, DescribeTensor(parts[0])));

  for (std::size_t p = 0; p < parts.size(); ++p) {
    const WeightTensor& tensor = parts[p];
    const Part& part = matrix->parts_[p];
    const std::size_t row_bytes = WeightRowBytes(tensor.type, tensor.cols);
    const std::size_t panel_bytes = PanelBytes(tensor.type, tensor.cols);
    pool.For(PanelCount(tensor.rows), [&](int index, int) {
      std::byte* panel =
          matrix->memory_.data() + part.offset + index * panel_bytes;
      const std::int64_t first = std::int64_t{index} * kPanelColumns;
      const std::int64_t end = std::min(first + kPanelColumns, tensor.rows);
      for (std::int64_t n = first; n < end; ++n) {
        const std::int64_t row =
            tensor.row_order.empty() ? n : tensor.row_order[n];
        PackRow(tensor.type, tensor.data + row * row_bytes, tensor.cols,
                static_cast<int>(n - first), panel);
      }
    });
  }
  return matrix;
}

Panel PackedMatrix::PanelIn(const Part& part, int index) const {
  const std::int64_t first = std::int64_t{index} * kPanelColumns;
  return {part.type,
          static_cast<int>(
              std::min<std::int64_t>(kPanelColumns, part.rows - first)),
          part.first_column + first,
          memory_.data() + part.offset +
              static_cast<std::size_t>(index) * PanelBytes(part.type, cols_)};
}

Panel PackedMatrix::panel(int index) const {
  std::size_t p = parts_.size() - 1;
  while (parts_[p].first_panel > index) --p;
  return PanelIn(parts_[p], index - parts_[p].first_panel);
}

Panel PackedMatrix::PanelOf(std::int64_t column) const {
  std::size_t p = parts_.size() - 1;
  while (parts_[p].first_column > column) --p;
  return PanelIn(parts_[p], static_cast<int>((column - parts_[p].first_column) /
                                             kPanelColumns));
}

}  // namespace holdfast::kernels
