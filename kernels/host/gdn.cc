#include "kernels/host/gdn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace holdfast::kernels {
namespace {

// Rows whose gates or norms one task computes.
constexpr int kRowsPerTask = 16;
constexpr int kMostDim = 256;
constexpr int kKeyUnit = 16;

int Tasks(int rows) { return (rows + kRowsPerTask - 1) / kRowsPerTask; }

int KeyHead(const GdnShape& shape, int value_head) {
  return shape.heads == GdnHeads::kTiled
             ? value_head % shape.key_heads
             : value_head / (shape.value_heads / shape.key_heads);
}

int LaunchRows(std::span<const RowSpan> spans) {
  int rows = 0;
  for (const RowSpan& span : spans) {
    rows = std::max(rows, span.first_row + span.rows);
  }
  return rows;
}

Status CheckShape(const GdnShape& shape) {
  const auto dim_fits = [](int dim, int unit) {
    return dim > 0 && dim <= kMostDim && dim % unit == 0;
  };
  if (shape.key_heads > 0 && shape.value_heads > 0 &&
      shape.value_heads % shape.key_heads == 0 &&
      dim_fits(shape.key_dim, kKeyUnit) && dim_fits(shape.value_dim, kStripe)) {
    return OkStatus();
  }
  return Unimplemented(
      "gated delta net of " + std::to_string(shape.key_heads) +
      " key heads of " + std::to_string(shape.key_dim) + " and " +
      std::to_string(shape.value_heads) + " value heads of " +
      std::to_string(shape.value_dim) +
      ": the host backend takes a multiple of the key heads as value heads, "
      "key dimensions in multiples of 16 and value dimensions in multiples of "
      "32, both up to 256");
}

}  // namespace

Status HostGdn::Prepare(const Limits& limits) {
  const GdnShape& shape = limits.gdn;
  if (shape.key_heads == 0 && shape.value_heads == 0) return OkStatus();
  HF_RETURN_IF_ERROR(CheckShape(shape));
  const std::size_t row_floats = shape.Channels() + 2 * shape.value_heads;
  HF_ASSIGN_OR_RETURN(
      scratch_, HostMemory::Make(limits.max_rows * row_floats * sizeof(float),
                                 "gated delta net rows"));
  return OkStatus();
}

HostGdn::Rows HostGdn::Carve(const GdnCall& call) const {
  const GdnShape& shape = call.shape;
  Rows rows;
  rows.count = LaunchRows(call.spans);
  const std::ptrdiff_t count = rows.count;
  rows.q = scratch_.floats();
  rows.k = rows.q + count * shape.KeyWidth();
  rows.v = rows.k + count * shape.KeyWidth();
  rows.beta = rows.v + count * shape.ValueWidth();
  rows.decay = rows.beta + count * shape.value_heads;
  return rows;
}

void HostGdn::Run(const GdnCall& call) {
  const Rows rows = Carve(call);
  Inputs(call, rows);
  Recur(call, rows);
  Norm(call, rows);
}

// Head `head` of [q heads | k heads | v heads].
void HostGdn::ConvHead(const GdnCall& call, const Rows& rows,
                       const RowSpan& span, int head) {
  const GdnShape& shape = call.shape;
  const bool is_value = head >= 2 * shape.key_heads;
  const int dims = is_value ? shape.value_dim : shape.key_dim;
  const int value_head = head - 2 * shape.key_heads;
  const int channel =
      is_value ? 2 * shape.KeyWidth() + value_head * dims : head * dims;
  GdnConvHead conv;
  conv.in = call.projected +
            static_cast<std::int64_t>(span.first_row) * call.row_stride +
            channel;
  conv.in_stride = call.row_stride;
  conv.rows = span.rows;
  conv.dims = dims;
  conv.weights = call.weights.conv + channel;
  conv.channels = shape.Channels();
  conv.state_type = shape.state_type;
  conv.tail = span.sections + call.place.tail +
              channel * (shape.state_type == StateType::kBF16 ? 2 : 4);
  conv.from_zero = span.position == 0;
  conv.normalise = !is_value;
  if (head < shape.key_heads) {
    conv.scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
  }
  // k's rows follow q's, and v's follow k's.
  conv.out = rows.q + static_cast<std::int64_t>(rows.count) * channel +
             static_cast<std::int64_t>(span.first_row) * dims;
  kernels_.conv(conv);
}

void HostGdn::Inputs(const GdnCall& call, const Rows& rows) {
  const GdnShape& shape = call.shape;
  const int heads = 2 * shape.key_heads + shape.value_heads;
  const int conv_tasks = heads * static_cast<int>(call.spans.size());
  pool_.For(conv_tasks + Tasks(rows.count), [&](int task, int) {
    if (task < conv_tasks) {
      ConvHead(call, rows, call.spans[task / heads], task % heads);
      return;
    }
    const int first = (task - conv_tasks) * kRowsPerTask;
    const int end = std::min(rows.count, first + kRowsPerTask);
    for (int row = first; row < end; ++row) {
      const float* b = call.projected +
                       static_cast<std::int64_t>(row) * call.row_stride +
                       shape.Channels() + shape.ValueWidth();
      kernels_.gates(b, b + shape.value_heads, call.weights, shape.value_heads,
                     rows.count, rows.beta + row, rows.decay + row);
    }
  });
}

void HostGdn::Recur(const GdnCall& call, const Rows& rows) {
  const GdnShape& shape = call.shape;
  const int stripes = shape.value_dim / kStripe;
  const int group = kernels_.stripes;
  const int groups = (stripes + group - 1) / group;
  const int span_tasks = groups * shape.value_heads;
  const int tasks = span_tasks * static_cast<int>(call.spans.size());
  pool_.For(tasks, [&](int task, int) {
    const RowSpan& span = call.spans[task / span_tasks];
    const int head = task % span_tasks / groups;
    const int stripe = task % groups * group;
    const std::int64_t key_row =
        static_cast<std::int64_t>(KeyHead(shape, head)) * rows.count +
        span.first_row;
    const std::int64_t value_row =
        static_cast<std::int64_t>(head) * rows.count + span.first_row;
    GdnStripes part;
    part.state = reinterpret_cast<float*>(span.sections + call.place.state) +
                 static_cast<std::int64_t>(head * stripes + stripe) *
                     shape.key_dim * kStripe;
    part.stripes = std::min(group, stripes - stripe);
    part.key_dim = shape.key_dim;
    part.rows = span.rows;
    part.from_zero = span.position == 0;
    part.q = rows.q + key_row * shape.key_dim;
    part.k = rows.k + key_row * shape.key_dim;
    part.v = rows.v + value_row * shape.value_dim + stripe * kStripe;
    part.v_stride = shape.value_dim;
    part.beta = rows.beta + value_row;
    part.decay = rows.decay + value_row;
    kernels_.recur(part);
  });
}

void HostGdn::Norm(const GdnCall& call, const Rows& rows) {
  const GdnShape& shape = call.shape;
  const int dims = shape.value_dim;
  pool_.For(Tasks(rows.count), [&](int task, int) {
    const int end = std::min(rows.count, (task + 1) * kRowsPerTask);
    for (int row = task * kRowsPerTask; row < end; ++row) {
      const float* z = call.projected +
                       static_cast<std::int64_t>(row) * call.row_stride +
                       shape.Channels();
      float* out =
          call.out + static_cast<std::int64_t>(row) * shape.ValueWidth();
      for (int head = 0; head < shape.value_heads; ++head) {
        const std::int64_t at =
            static_cast<std::int64_t>(head) * rows.count + row;
        kernels_.gated_norm(rows.v + at * dims, z + head * dims,
                            call.weights.norm, call.weights.norm_eps, dims,
                            out + head * dims);
      }
    }
  });
}

}  // namespace holdfast::kernels
