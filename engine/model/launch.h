// The rows of one Forward: every sequence's, one after the other.
#ifndef HOLDFAST_ENGINE_MODEL_LAUNCH_H_
#define HOLDFAST_ENGINE_MODEL_LAUNCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

class Launch {
 public:
  // Room for launches of max_rows rows; Collect then allocates nothing.
  void Reserve(int max_rows);

  // Checks the sequences against the model and lays out their rows. An error
  // when a sequence has no rows, blocks or sections, leaves the context or the
  // vocabulary, or the rows are more than Reserve was told.
  kernels::Status Collect(std::span<const SequenceRows> sequences,
                          const ModelInfo& info);

  int rows() const { return rows_; }
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const kernels::RowSpan> spans() const { return spans_; }

  // Writes the last row of each sequence, of `cols` numbers, at `offset` of its
  // sections.
  void CopyLastRows(const float* rows, int cols, std::size_t offset,
                    std::span<const SequenceRows> sequences,
                    kernels::Backend& backend) const;

 private:
  int max_rows_ = 0;
  int rows_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<kernels::RowSpan> spans_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LAUNCH_H_
