#include "kernels/host/gdn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace holdfast::kernels {
namespace {

// Rows of a pass: their convolved heads stay in the outer caches between the
// steps.
constexpr int kPassRows = 256;
// Spans of up to this many rows are decode rows: each head goes through all
// steps on one thread.
constexpr int kFewRows = 8;
constexpr int kMostDim = 256;
constexpr int kLineFloats = 16;  // of a cache line
constexpr int kKeyUnit = 16;

int KeyHead(const GdnShape& shape, int value_head) {
  return shape.heads == GdnHeads::kTiled
             ? value_head % shape.key_heads
             : value_head / (shape.value_heads / shape.key_heads);
}

// The j-th value head of a key head.
int ValueHead(const GdnShape& shape, int key_head, int j) {
  return shape.heads == GdnHeads::kTiled
             ? key_head + j * shape.key_heads
             : key_head * (shape.value_heads / shape.key_heads) + j;
}

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

std::int64_t At(int index, int stride) {
  return static_cast<std::int64_t>(index) * stride;
}

int LongestPiece(std::span<const GdnPiece> pieces) {
  int rows = 0;
  for (const GdnPiece& piece : pieces) rows = std::max(rows, piece.span.rows);
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
  pass_rows_ = std::clamp(limits.max_rows, 1, kPassRows);
  pieces_.reserve(pass_rows_);
  const std::size_t row_floats = shape.Channels() + 2 * shape.value_heads;
  HF_ASSIGN_OR_RETURN(scratch_,
                      HostMemory::Make(pass_rows_ * row_floats * sizeof(float),
                                       "gated delta net rows"));
  return OkStatus();
}

GdnRows HostGdn::Carve(const GdnShape& shape, int count) const {
  GdnRows rows;
  rows.count = count;
  rows.q = scratch_.floats();
  rows.k = rows.q + At(count, shape.KeyWidth());
  rows.v = rows.k + At(count, shape.KeyWidth());
  rows.beta = rows.v + At(count, shape.ValueWidth());
  rows.gate_stride = RoundUp(count, kLineFloats);
  rows.decay = rows.beta + At(rows.gate_stride, shape.value_heads);
  return rows;
}

void HostGdn::TakePieces(const GdnCall& call, std::size_t& span, int& row) {
  pieces_.clear();
  int taken = 0;
  while (span < call.spans.size() && taken < pass_rows_) {
    GdnPiece piece = {call.spans[span], taken};
    const int rest = piece.span.rows - row;
    piece.span.first_row += row;
    piece.span.position += row;
    piece.span.rows = std::min(rest, pass_rows_ - taken);
    if (piece.span.rows > 0) pieces_.push_back(piece);
    taken += piece.span.rows;
    row += piece.span.rows;
    if (piece.span.rows == rest) {
      row = 0;
      ++span;
    }
  }
}

void HostGdn::Run(const GdnCall& call) {
  std::size_t span = 0;
  int row = 0;
  while (span < call.spans.size()) {
    TakePieces(call, span, row);
    int count = 0;
    for (const GdnPiece& piece : pieces_) count += piece.span.rows;
    if (count == 0) continue;
    const GdnRows rows = Carve(call.shape, count);
    if (LongestPiece(pieces_) <= kFewRows) {
      RunHeads(call, rows);
    } else {
      RunSteps(call, rows);
    }
  }
}

void HostGdn::RunSteps(const GdnCall& call, const GdnRows& rows) {
  const GdnShape& shape = call.shape;
  const int conv_heads = 2 * shape.key_heads + shape.value_heads;
  const int pieces = static_cast<int>(pieces_.size());
  // One task more of each piece for its gates.
  pool_.For(pieces * (conv_heads + 1), [&](int task, int) {
    const GdnPiece& piece = pieces_[task / (conv_heads + 1)];
    const int head = task % (conv_heads + 1);
    if (head < conv_heads) {
      ConvHead(call, rows, piece, head);
    } else {
      Gates(call, rows, piece, 0, shape.value_heads);
    }
  });
  Recur(call, pieces_, rows);
  pool_.For(pieces * shape.value_heads, [&](int task, int) {
    Norm(call, rows, pieces_[task / shape.value_heads],
         task % shape.value_heads);
  });
}

void HostGdn::Recur(const GdnCall& call, std::span<const GdnPiece> pieces,
                    const GdnRows& rows) {
  const GdnShape& shape = call.shape;
  const int stripes = shape.value_dim / kStripe;
  const int group =
      LongestPiece(pieces) <= kFewRows ? stripes : kernels_.stripes;
  const int groups = (stripes + group - 1) / group;
  const int piece_tasks = groups * shape.value_heads;
  const int tasks = piece_tasks * static_cast<int>(pieces.size());
  pool_.For(tasks, [&](int task, int) {
    const int stripe = task % groups * group;
    RecurStripes(call, rows, pieces[task / piece_tasks],
                 task % piece_tasks / groups, stripe,
                 std::min(group, stripes - stripe));
  });
}

void HostGdn::RunHeads(const GdnCall& call, const GdnRows& rows) {
  const GdnShape& shape = call.shape;
  const int key_heads = shape.key_heads;
  const int tasks = key_heads * static_cast<int>(pieces_.size());
  pool_.For(tasks, [&](int task, int) {
    const GdnPiece& piece = pieces_[task / key_heads];
    const int key = task % key_heads;
    ConvHead(call, rows, piece, key);
    ConvHead(call, rows, piece, key_heads + key);
    const int group = shape.value_heads / key_heads;
    for (int j = 0; j < group; ++j) {
      const int head = ValueHead(shape, key, j);
      const bool last = j + 1 == group;
      const int next = last && key + 1 == key_heads
                           ? -1
                           : ValueHead(shape, key + last, last ? 0 : j + 1);
      ConvHead(call, rows, piece, 2 * key_heads + head);
      Gates(call, rows, piece, head, 1);
      RecurStripes(call, rows, piece, head, 0, shape.value_dim / kStripe, next);
      Norm(call, rows, piece, head);
    }
  });
}

void HostGdn::ConvHead(const GdnCall& call, const GdnRows& rows,
                       const GdnPiece& piece, int head) const {
  const RowSpan& span = piece.span;
  const GdnShape& shape = call.shape;
  const bool is_value = head >= 2 * shape.key_heads;
  const int dims = is_value ? shape.value_dim : shape.key_dim;
  const int value_head = head - 2 * shape.key_heads;
  const int channel =
      is_value ? 2 * shape.KeyWidth() + value_head * dims : head * dims;
  GdnConvHead conv;
  conv.in = call.projected + At(span.first_row, call.row_stride) + channel;
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
  conv.out = rows.q + At(rows.count, channel) + At(piece.row, dims);
  kernels_.conv(conv);
}

void HostGdn::Gates(const GdnCall& call, const GdnRows& rows,
                    const GdnPiece& piece, int head, int heads) const {
  const GdnShape& shape = call.shape;
  const float* b = call.projected + At(piece.span.first_row, call.row_stride) +
                   shape.Channels() + shape.ValueWidth() + head;
  const std::int64_t first = At(head, rows.gate_stride) + piece.row;
  for (int r = 0; r < piece.span.rows; ++r, b += call.row_stride) {
    kernels_.gates(b, b + shape.value_heads, call.weights.decay_rate + head,
                   call.weights.dt_bias + head, heads, rows.gate_stride,
                   rows.beta + first + r, rows.decay + first + r);
  }
}

void HostGdn::RecurStripes(const GdnCall& call, const GdnRows& rows,
                           const GdnPiece& piece, int head, int stripe,
                           int stripes, int next) const {
  const RowSpan& span = piece.span;
  const GdnShape& shape = call.shape;
  const std::int64_t key_row = At(KeyHead(shape, head), rows.count) + piece.row;
  const std::int64_t value_row = At(head, rows.count) + piece.row;
  GdnStripes part;
  const auto state = [&](int h) {
    return reinterpret_cast<float*>(span.sections + call.place.state) +
           At(h, shape.key_dim * shape.value_dim);
  };
  part.state = state(head) + At(stripe, shape.key_dim * kStripe);
  if (next >= 0) part.next = state(next);
  part.stripes = stripes;
  part.key_dim = shape.key_dim;
  part.rows = span.rows;
  part.from_zero = span.position == 0;
  part.q = rows.q + key_row * shape.key_dim;
  part.k = rows.k + key_row * shape.key_dim;
  part.v = rows.v + value_row * shape.value_dim + stripe * kStripe;
  part.v_stride = shape.value_dim;
  const std::int64_t gate = At(head, rows.gate_stride) + piece.row;
  part.beta = rows.beta + gate;
  part.decay = rows.decay + gate;
  kernels_.recur(part);
}

void HostGdn::Norm(const GdnCall& call, const GdnRows& rows,
                   const GdnPiece& piece, int head) const {
  const GdnShape& shape = call.shape;
  GdnNormHead norm;
  norm.dims = shape.value_dim;
  norm.x = rows.v + (At(head, rows.count) + piece.row) * norm.dims;
  norm.rows = piece.span.rows;
  norm.weight = call.weights.norm;
  norm.eps = call.weights.norm_eps;
  norm.z = call.projected + At(piece.span.first_row, call.row_stride) +
           shape.Channels() + head * norm.dims;
  norm.z_stride = call.row_stride;
  norm.out = call.out + At(piece.span.first_row, shape.ValueWidth()) +
             head * norm.dims;
  norm.out_stride = shape.ValueWidth();
  kernels_.gated_norm(norm);
}

}  // namespace holdfast::kernels
