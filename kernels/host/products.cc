#include "kernels/host/products.h"

#include <algorithm>
#include <cstring>

#include "kernels/host/fetch.h"

namespace holdfast::kernels {
namespace {

// Rows packed at a time: bounds the scratch.
constexpr int kPassRows = 1024;
// Rows whose packed K block (333 KiB) stays in the second-level cache while
// panels pass over it; a multiple of every row tile.
constexpr int kBlockRows = 444;
// Panels that one task takes through a K block before it goes to the next.
constexpr int kMostGroupPanels = 8;
// Enough tasks that a thread that is held up does not hold up the product.
constexpr int kTasksPerThread = 8;

// Of each thread: a widened K block of a panel, then the rows of a partial
// panel, whose padding columns have no place in the output.
constexpr std::size_t kWidenedFloats = kWidenedK * kPanelColumns;
constexpr std::size_t kThreadFloats =
    kWidenedFloats + kBlockRows * kPanelColumns;

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Status HostProducts::Prepare(const Limits& limits) {
  pass_rows_ = std::clamp(limits.max_rows, 1, kPassRows);
  HF_ASSIGN_OR_RETURN(
      packed_, HostMemory::Make(sizeof(float) * pass_rows_ * limits.max_cols,
                                "packed rows"));
  HF_ASSIGN_OR_RETURN(
      thread_scratch_,
      HostMemory::Make(sizeof(float) * kThreadFloats * pool_.threads(),
                       "product scratch"));
  if (exactness_ == Exactness::kGrid) {
    const std::int64_t widest = std::max(limits.max_cols, limits.max_vocab);
    HF_ASSIGN_OR_RETURN(
        halves_,
        HostMemory::Make(sizeof(float) * 2 * (limits.max_cols + widest),
                         "half rows"));
  }
  return OkStatus();
}

void HostProducts::MatMul(const PackedMatrix& w, const float* x, int rows,
                          const float* bias, float* y) {
  if (exactness_ == Exactness::kGrid && rows == 1) {
    RowInHalves(w, x, bias, y);
    return;
  }
  if (rows <= kernels_.few_rows) {
    FewRows(w, x, rows, bias, y);
    return;
  }
  for (int row = 0; row < rows; row += pass_rows_) {
    const int count = std::min(pass_rows_, rows - row);
    PackRows(x + row * w.cols(), count, w.cols());
    MultiplyPass({&w, bias, y + row * w.rows(), count});
  }
}

void HostProducts::FetchOutput(std::int64_t column, int panels, int rows,
                               std::int64_t stride, float* y) const {
  if (pool_.threads() == 1) return;
  for (int row = 0; row < rows; ++row) {
    FetchLinesToWrite(y + row * stride + column,
                      panels * kPanelColumns * sizeof(float));
  }
}

void HostProducts::FewRows(const PackedMatrix& w, const float* x, int rows,
                           const float* bias, float* y) {
  ThreadBalance& balance = w.balance();
  const int lead = balance.lead();
  const PackedMatrix* const matrix = &w;
  // Two panels together, but shares may end inside a pair.
  pool_.ForRuns(
      2 * w.pairs(), 2, lead, [=, this](int begin, int end, int thread) {
        const PackedMatrix::Pair pair = matrix->pair(begin / 2);
        const int first = begin % 2;
        const int count = std::min(first + end - begin, pair.count) - first;
        const ThreadPool::Range share =
            pool_.ShareOf(2 * matrix->pairs(), thread, lead);
        if (begin == share.begin && thread != 0) {
          FetchLines(x, rows * matrix->cols() * sizeof(float));
        }
        if (count <= 0) return;  // of a panel that is alone in its pair
        FetchOutput(pair.panels[first].first_column, count, rows,
                    matrix->rows(), y);
        const std::byte* next = nullptr;
        if (end == share.end) next = matrix->ShareAfter(thread, pool_);
        if (next == nullptr) next = matrix->PairData(begin / 2 + 1);
        kernels_.few({pair.panels + first, count, matrix->cols(), x, rows, bias,
                      y, matrix->rows(), next});
      });
  if (pool_.threads() > 1) balance.Learn(pool_.pauses());
}

void HostProducts::RowInHalves(const PackedMatrix& w, const float* x,
                               const float* bias, float* y) {
  const std::int64_t cols = w.cols();
  const std::int64_t half = cols / 2;
  float* in = halves_.floats();
  float* sums = in + 2 * cols;
  std::fill_n(in, 2 * cols, 0.0f);
  std::copy_n(x, half, in);
  std::copy(x + half, x + cols, in + cols + half);
  FewRows(w, in, 2, nullptr, sums);
  for (std::int64_t n = 0; n < w.rows(); ++n) {
    y[n] = sums[n] + sums[w.rows() + n];
    if (bias != nullptr) y[n] += bias[n];
  }
}

// Row r, number k of K block b lies at packed[b.start * rows + tile start *
// b.count + (k - b.start) * tile rows + row in tile].
void HostProducts::PackRows(const float* x, int rows, std::int64_t cols) {
  const int tile_rows = kernels_.row_tile;
  pool_.For((rows + tile_rows - 1) / tile_rows, [&](int tile, int) {
    const int first = tile * tile_rows;
    const int count = std::min(tile_rows, rows - first);
    for (std::int64_t k0 = 0; k0 < cols; k0 += kWidenedK) {
      const std::int64_t k_count = std::min<std::int64_t>(kWidenedK, cols - k0);
      float* to = packed_.floats() + k0 * rows + first * k_count;
      const float* from = x + first * cols + k0;
      for (std::int64_t k = 0; k < k_count; ++k) {
        for (int r = 0; r < count; ++r) to[r] = from[r * cols + k];
        to += count;
      }
    }
  });
}

void HostProducts::MultiplyPass(const Pass& pass) {
  const int row_blocks = (pass.rows + kBlockRows - 1) / kBlockRows;
  const int block_rows =
      RoundUp((pass.rows + row_blocks - 1) / row_blocks, kernels_.row_tile);
  const int panels = pass.w->panels();
  const int group =
      std::clamp(panels * row_blocks / (kTasksPerThread * pool_.threads()), 1,
                 kMostGroupPanels);
  const int groups = (panels + group - 1) / group;
  pool_.For(groups * row_blocks, [&](int task, int thread) {
    const int row = task / groups * block_rows;
    const int first = task % groups * group;
    MultiplyPanels(pass, row, std::min(block_rows, pass.rows - row), first,
                   std::min(first + group, panels), thread);
  });
}

void HostProducts::MultiplyPanels(const Pass& pass, int row, int rows,
                                  int first, int end, int thread) {
  for (std::int64_t k0 = 0; k0 < pass.w->cols(); k0 += kWidenedK) {
    for (int index = first; index < end; ++index) {
      MultiplyPanel(pass, row, rows, index, k0, thread);
    }
  }
}

void HostProducts::MultiplyPanel(const Pass& pass, int row, int rows, int index,
                                 std::int64_t k_start, int thread) {
  const Panel panel = pass.w->panel(index);
  float* widened = thread_scratch_.floats() + thread * kThreadFloats;
  float* staging = widened + kWidenedFloats;
  float* out = pass.y + row * pass.w->rows() + panel.first_column;
  const std::int64_t cols = pass.w->cols();
  const bool whole = panel.columns == kPanelColumns;

  ProductBlock block;
  block.k_count =
      static_cast<int>(std::min<std::int64_t>(kWidenedK, cols - k_start));
  block.x = packed_.floats() + k_start * pass.rows +
            static_cast<std::ptrdiff_t>(row) * block.k_count;
  block.rows = rows;
  block.w = widened;
  block.first = k_start == 0;
  block.out = whole ? out : staging;
  block.out_stride = whole ? pass.w->rows() : kPanelColumns;
  const bool last = k_start + block.k_count == cols;

  kernels_.widen(panel, k_start, block.k_count, widened);
  if (whole) {
    block.bias =
        last && pass.bias != nullptr ? pass.bias + panel.first_column : nullptr;
    kernels_.block(block);
    return;
  }
  const auto copy = [&](const float* from, std::int64_t from_stride, float* to,
                        std::int64_t to_stride) {
    for (int r = 0; r < rows; ++r) {
      std::memcpy(to + r * to_stride, from + r * from_stride,
                  panel.columns * sizeof(float));
    }
  };
  if (!block.first) copy(out, pass.w->rows(), staging, kPanelColumns);
  kernels_.block(block);
  if (last && pass.bias != nullptr) {
    for (int r = 0; r < rows; ++r) {
      for (int n = 0; n < panel.columns; ++n) {
        staging[r * kPanelColumns + n] += pass.bias[panel.first_column + n];
      }
    }
  }
  copy(staging, kPanelColumns, out, pass.w->rows());
}

void HostProducts::EmbedRow(const PackedMatrix& table, std::int32_t id,
                            float* out) const {
  const Panel panel = table.PanelOf(id);
  kernels_.column(panel, static_cast<int>(id - panel.first_column),
                  table.cols(), out);
}

}  // namespace holdfast::kernels
