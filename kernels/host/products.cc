#include "kernels/host/products.h"

#include <algorithm>

namespace holdfast::kernels {

Status HostProducts::Prepare(const Limits&) { return OkStatus(); }

void HostProducts::MatMul(const PackedMatrix& w, const float* x, int rows,
                          const float* bias, float* y) {
  pool_.For(w.panels(), [&](int index, int) {
    const Panel panel = w.panel(index);
    const float* panel_bias =
        bias == nullptr ? nullptr : bias + panel.first_column;
    for (int r = 0; r < rows; r += kernels_.few_rows) {
      kernels_.few(panel, w.cols(), x + r * w.cols(), w.cols(),
                   std::min(kernels_.few_rows, rows - r), panel_bias,
                   y + r * w.rows() + panel.first_column, w.rows());
    }
  });
}

void HostProducts::EmbedRow(const PackedMatrix& table, std::int32_t id,
                            float* out) const {
  const Panel panel = table.PanelOf(id);
  kernels_.column(panel, static_cast<int>(id - panel.first_column),
                  table.cols(), out);
}

}  // namespace holdfast::kernels
