// How many rows a prefill step takes.
#ifndef HOLDFAST_ENGINE_SCHEDULER_STEP_SIZE_H_
#define HOLDFAST_ENGINE_SCHEDULER_STEP_SIZE_H_

#include <limits>

namespace holdfast::engine {

// Never across a grid line. Where any split is exact: steps of about a quarter
// of a second by the rate measured, so that a cancel takes effect soon and
// progress is shown. On a grid backend: all rows up to the line, as a cold run
// launches them. One thread.
class StepSize {
 public:
  enum class Steps { kTimed, kChunks };
  static constexpr double kTargetSeconds = 0.25;
  static constexpr int kGranularity = 16;
  // Of one step besides.
  struct Limits {
    int rows = std::numeric_limits<int>::max();
    double seconds = kTargetSeconds;
  };
  // Before anything was measured.
  static constexpr int kFirstRows = 64;

  // kChunks: max_rows is at least grid_tokens.
  StepSize(int max_rows, int grid_tokens, Steps steps)
      : max_rows_(max_rows), grid_tokens_(grid_tokens), steps_(steps) {}

  // Rows of the next step of a prompt with `remaining` rows left from
  // `position` on; at least 1 when any are left. kChunks knows no limits.
  int Next(int position, int remaining, const Limits& limits) const;
  int Next(int position, int remaining) const {
    return Next(position, remaining, Limits());
  }
  // Of `rows` rows, as far as is known; 0: nothing was measured.
  double PredictedSeconds(int rows) const { return rows * seconds_per_row_; }
  // What a step of `rows` rows took. Short steps say little and are left out.
  void Measured(int rows, double seconds);

 private:
  const int max_rows_;
  const int grid_tokens_;
  const Steps steps_;
  double seconds_per_row_ = 0;  // 0: not measured yet
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_STEP_SIZE_H_
