#include "engine/scheduler/step_size.h"

#include <algorithm>

namespace holdfast::engine {

int StepSize::Next(int position, int remaining, const Limits& limits) const {
  const int to_line = grid_tokens_ - position % grid_tokens_;
  if (steps_ == Steps::kChunks) return std::min(to_line, remaining);
  int rows = kFirstRows;
  if (seconds_per_row_ > 0) {
    const double fit = limits.seconds / seconds_per_row_;
    rows = static_cast<int>(std::min(fit, static_cast<double>(max_rows_)));
  }
  rows = std::max(rows / kGranularity, 1) * kGranularity;
  return std::min({rows, limits.rows, max_rows_, to_line, remaining});
}

void StepSize::Measured(int rows, double seconds) {
  if (rows < kGranularity || seconds <= 0) return;
  const double measured = seconds / rows;
  // Half old, half new: the rate changes slowly, with depth and with load.
  seconds_per_row_ = seconds_per_row_ == 0
                         ? measured
                         : 0.5 * seconds_per_row_ + 0.5 * measured;
}

}  // namespace holdfast::engine
