#include "kernels/host/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/host/fetch.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::kernels {
namespace {

std::int64_t Blocks(std::int64_t count, std::int64_t of) {
  return count / of + (count % of != 0);
}

float ScaleOf(const WeightTensor& tensor, std::int64_t row, std::int64_t col) {
  const std::int64_t stride = Blocks(tensor.cols, tensor.scale_cols);
  return tensor
      .scales[row / tensor.scale_rows * stride + col / tensor.scale_cols];
}

// Why the numbers and scales of F8_E4M3 cannot be used; empty when they can.
std::string WrongF8(const WeightTensor& tensor) {
  const std::int64_t block = FormatOf(WeightType::kF8E4M3).block;
  if (tensor.scale_rows < 1 || tensor.scale_cols < 1 ||
      (tensor.scale_cols % block != 0 && tensor.scale_cols < tensor.cols)) {
    return "scales of " + std::to_string(tensor.scale_rows) + " x " +
           std::to_string(tensor.scale_cols) + " numbers";
  }
  const std::int64_t scales = Blocks(tensor.rows, tensor.scale_rows) *
                              Blocks(tensor.cols, tensor.scale_cols);
  if (static_cast<std::int64_t>(tensor.scales.size()) != scales) {
    return std::to_string(tensor.scales.size()) + " scales, needs " +
           std::to_string(scales);
  }
  for (const float scale : tensor.scales) {
    if (!(std::fabs(scale) < kF8ScaleBound)) {
      return "scale " + std::to_string(scale) + " is too large";
    }
  }
  bool nan = false;
  for (std::int64_t i = 0; i < tensor.rows * tensor.cols; ++i) {
    nan |= (tensor.data[i] & std::byte{0x7f}) == std::byte{0x7f};
  }
  return nan ? "it holds NaN" : "";
}

// Row `row` of the file becomes column `column` of the panel at `to`.
void PackRow(const WeightTensor& tensor, std::int64_t row, int column,
             const Panel& panel, std::byte* to) {
  const std::size_t row_bytes = WeightRowBytes(tensor.type, tensor.cols);
  const std::byte* from = tensor.data + row * row_bytes;
  if (!IsQuantised(tensor.type)) {
    const std::size_t bytes = ColumnBytes(tensor.type, 1);
    for (std::int64_t k = 0; k < tensor.cols; ++k) {
      std::memcpy(to + (k * kPanelColumns + column) * bytes, from + k * bytes,
                  bytes);
    }
    return;
  }
  const int block = FormatOf(tensor.type).block;
  for (std::int64_t k = 0; k < tensor.cols; k += block) {
    FileBlock file;
    file.count =
        static_cast<int>(std::min<std::int64_t>(block, tensor.cols - k));
    file.data = from;
    if (!tensor.scales.empty()) file.scale = ScaleOf(tensor, row, k);
    PackQuantBlock(tensor.type, file, panel.width, panel.column + column, to);
    from += WeightRowBytes(tensor.type, file.count);
    to += QuantBlockBytes(tensor.type) * panel.width;
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
    return fail("rows of this type must be a multiple of " +
                std::to_string(WeightBlock(tensor.type)) + " numbers");
  }
  if (tensor.type == WeightType::kF8E4M3) {
    if (const std::string why = WrongF8(tensor); !why.empty()) return fail(why);
  } else if (!tensor.scales.empty()) {
    return fail("this type has no scales beside it");
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
    std::span<const WeightTensor> parts, WeightMemory& memory,
    ThreadPool& pool) {
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
    const int panels = PanelCount(tensor.rows);
    matrix->parts_.push_back({tensor.type, tensor.rows, matrix->rows_,
                              matrix->panels_, panels, matrix->pairs_, bytes});
    matrix->pairs_ += (panels + 1) / 2;
    matrix->rows_ += tensor.rows;
    matrix->panels_ += panels;
    bytes += panels * kPanelColumns * ColumnBytes(tensor.type, tensor.cols);
  }
  matrix->cols_ = parts[0].cols;
  matrix->bytes_ = bytes;
  matrix->balance_ = std::make_shared<ThreadBalance>();
  HF_ASSIGN_OR_RETURN(matrix->memory_,
                      memory.arena_.Take(bytes, DescribeTensor(parts[0])));

  for (std::size_t p = 0; p < parts.size(); ++p) {
    const WeightTensor& tensor = parts[p];
    const Part& part = matrix->parts_[p];
    pool.For(part.panels, [&](int index, int) {
      const Panel panel = matrix->PanelIn(part, index);
      std::byte* to = matrix->memory_.get() +
                      (panel.data - matrix->memory_.get());  // not const
      const std::int64_t first = std::int64_t{index} * kPanelColumns;
      const std::int64_t end = std::min(first + kPanelColumns, tensor.rows);
      for (std::int64_t n = first; n < end; ++n) {
        const std::int64_t row =
            tensor.row_order.empty() ? n : tensor.row_order[n];
        PackRow(tensor, row, static_cast<int>(n - first), panel, to);
      }
    });
  }
  if (memory.after_last_ != nullptr) {
    *memory.after_last_ = {matrix.get(),
                           matrix->parts_.data(),
                           matrix->parts_.size() * sizeof(Part),
                           matrix->memory_.get(),
                           bytes,
                           matrix->pairs_,
                           matrix->balance_};
  }
  matrix->follower_ = std::make_shared<Place>();
  memory.after_last_ = matrix->follower_;
  return matrix;
}

const std::byte* PackedMatrix::PairData(int index) const {
  return index < pairs_ ? pair(index).panels[0].data : memory_.get() + bytes_;
}

const std::byte* PackedMatrix::ShareAfter(int thread,
                                          const ThreadPool& pool) const {
  const Place& next = *follower_;
  if (next.data == nullptr || 2 * next.pairs > ThreadPool::kMostShared) {
    return next.data;
  }
  FetchLines(next.matrix, sizeof(PackedMatrix));
  FetchLines(next.parts, next.parts_bytes);
  const ThreadPool::Range share =
      pool.ShareOf(2 * next.pairs, thread, next.balance->lead());
  return next.data + next.bytes / next.pairs * (share.begin / 2);
}

Panel PackedMatrix::PanelIn(const Part& part, int index) const {
  const std::int64_t first = std::int64_t{index} * kPanelColumns;
  Panel panel;
  panel.type = part.type;
  panel.columns = static_cast<int>(
      std::min<std::int64_t>(kPanelColumns, part.rows - first));
  panel.first_column = part.first_column + first;
  const std::size_t column_bytes = ColumnBytes(part.type, cols_);
  int before = index;  // panels that lie wholly before this one's memory
  if (IsPaired(part.type)) {
    before = index / 2 * 2;
    if (before + 1 < part.panels) panel.width = 2 * kPanelColumns;
    panel.column = (index - before) * kPanelColumns;
  }
  panel.data =
      memory_.get() + part.offset + before * kPanelColumns * column_bytes;
  return panel;
}

PackedMatrix::Pair PackedMatrix::pair(int index) const {
  std::size_t p = parts_.size() - 1;
  while (parts_[p].first_pair > index) --p;
  const Part& part = parts_[p];
  const int first = 2 * (index - part.first_pair);
  Pair pair;
  pair.count = std::min(2, part.panels - first);
  for (int i = 0; i < pair.count; ++i) {
    pair.panels[i] = PanelIn(part, first + i);
  }
  return pair;
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
