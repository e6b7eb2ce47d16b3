// Where the rows of a launch belong, as kernels read it: device memory, filled
// by LaunchTables from the spans.
#ifndef HOLDFAST_KERNELS_CUDA_LAUNCH_TABLE_H_
#define HOLDFAST_KERNELS_CUDA_LAUNCH_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace holdfast::kernels::cuda {

// One activation row.
struct RowPlace {
  std::byte* block = nullptr;  // that holds the row's position
  std::int32_t position = 0;
  std::int32_t row = 0;  // among the launch's activation rows
};

// One sequence's rows.
struct SpanPlace {
  std::byte* const* blocks = nullptr;  // entry i: positions from 256 i
  std::byte* sections = nullptr;
  std::int32_t first_row = 0;
  std::int32_t position = 0;
  std::int32_t rows = 0;
};

struct LaunchTable {
  const RowPlace* rows = nullptr;  // in the order of the spans
  const SpanPlace* spans = nullptr;
  int row_count = 0;
  int span_count = 0;
  int end_row = 0;  // past the last activation row of any span
  // On the host's side, for launch sizes.
  int longest_span = 0;
  int most_positions = 0;  // position + rows, of the span that reaches furthest
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_LAUNCH_TABLE_H_
