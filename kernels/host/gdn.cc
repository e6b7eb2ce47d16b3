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
// Spans of up to this many rows are decode rows: a head goes through all steps
// on one thread.
constexpr int kFewRows = 8;
constexpr int kMostDim = 256;
constexpr int kLineFloats = 16;  // of a cache line
constexpr int kKeyUnit = 16;

int KeyHead(const GdnShape& shape, int value_head) {
  return shape.heads == GdnHeads::kTiled
             ? value_head % shape.key_heads
             : value_head / (shape.value_heads / shape.key_heads);
}

// Calls body(first, count) for the value heads of key heads [first, first +
// count), those that lie together at once.
template <typename Body>
void ForValueHeads(const GdnShape& shape, int first, int count,
                   const Body& body) {
  const int group = shape.value_heads / shape.key_heads;
  if (shape.heads == GdnHeads::kGrouped) {
    body(first * group, count * group);
    return;
  }
  for (int j = 0; j < group; ++j) body(first + j * shape.key_heads, count);
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
  const std::size_t floats =
      std::size_t(pass_rows_) * shape.Channels() +
      std::size_t(RoundUp(pass_rows_, kLineFloats)) * 2 * shape.value_heads;
  HF_ASSIGN_OR_RETURN(scratch_, HostMemory::Make(floats * sizeof(float),
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

GdnRows HostGdn::CarvePiece(const GdnShape& shape, GdnRows rows,
                            const GdnPiece& piece) {
  const int count = piece.span.rows;
  rows.count = count;
  rows.q += At(piece.row, shape.Channels());
  rows.k = rows.q + At(count, shape.KeyWidth());
  rows.v = rows.k + At(count, shape.KeyWidth());
  rows.beta += piece.row;
  rows.decay += piece.row;
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

int HostGdn::PartsOf(const GdnShape& shape, std::size_t pieces) const {
  // Heads that are computed together wait for memory once.
  const int count = static_cast<int>(pieces);
  return std::clamp((pool_.threads() + count - 1) / count, 1, shape.key_heads);
}

HostGdn::Heads HostGdn::PartOf(const GdnShape& shape, int part, int parts) {
  const int first = shape.key_heads * part / parts;
  return {first, shape.key_heads * (part + 1) / parts - first};
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
      ConvHeads(call, rows, piece, {head});
    } else {
      Gates(call, rows, piece, {0, shape.value_heads});
    }
  });
  Recur(call, pieces_, rows);
  pool_.For(pieces * shape.value_heads, [&](int task, int) {
    Norm(call, rows, pieces_[task / shape.value_heads],
         {task % shape.value_heads});
  });
}

void HostGdn::Recur(const GdnCall& call, std::span<const GdnPiece> pieces,
                    const GdnRows& rows) {
  const GdnShape& shape = call.shape;
  if (rows.count == 1) {
    const int parts = PartsOf(shape, 1);
    pool_.For(parts, [&](int part, int) {
      const Heads keys = PartOf(shape, part, parts);
      ForValueHeads(shape, keys.first, keys.count, [&](int first, int count) {
        Step(call, rows, pieces.front(), {first, count});
      });
    });
    return;
  }
  const int stripes = shape.value_dim / kStripe;
  const int group = kernels_.stripes;
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

void HostGdn::RunHeads(const GdnCall& call, const GdnRows& all) {
  const int parts = PartsOf(call.shape, pieces_.size());
  const int tasks = parts * static_cast<int>(pieces_.size());
  pool_.For(tasks, [&](int task, int) {
    GdnPiece piece = pieces_[task / parts];
    const GdnRows rows = CarvePiece(call.shape, all, piece);
    piece.row = 0;
    const Heads keys = PartOf(call.shape, task % parts, parts);
    if (rows.count == 1) {
      RunKeyHeads(call, rows, piece, keys);
      return;
    }
    for (int key = keys.first; key < keys.first + keys.count; ++key) {
      RunKeyHeads(call, rows, piece, {key});
    }
  });
}

void HostGdn::RunKeyHeads(const GdnCall& call, const GdnRows& rows,
                          const GdnPiece& piece, Heads keys) const {
  const GdnShape& shape = call.shape;
  const auto for_heads = [&](const auto& body) {
    ForValueHeads(shape, keys.first, keys.count, [&](int first, int count) {
      if (rows.count == 1) {
        body(Heads{first, count});
        return;
      }
      for (int head = first; head < first + count; ++head) body(Heads{head});
    });
  };
  ConvHeads(call, rows, piece, keys);
  ConvHeads(call, rows, piece, {shape.key_heads + keys.first, keys.count});
  for_heads([&](Heads heads) {
    ConvHeads(call, rows, piece,
              {2 * shape.key_heads + heads.first, heads.count});
    Gates(call, rows, piece, heads);
  });
  for_heads([&](Heads heads) {
    if (rows.count == 1) {
      Step(call, rows, piece, heads);
    } else {
      RecurStripes(call, rows, piece, heads.first, 0,
                   shape.value_dim / kStripe);
    }
    Norm(call, rows, piece, heads);
  });
}

void HostGdn::ConvHeads(const GdnCall& call, const GdnRows& rows,
                        const GdnPiece& piece, Heads heads) const {
  const RowSpan& span = piece.span;
  const GdnShape& shape = call.shape;
  const bool is_value = heads.first >= 2 * shape.key_heads;
  const int dims = is_value ? shape.value_dim : shape.key_dim;
  const int value_head = heads.first - 2 * shape.key_heads;
  const int channel =
      is_value ? 2 * shape.KeyWidth() + value_head * dims : heads.first * dims;
  GdnConvHeads conv;
  conv.in = call.projected + At(span.first_row, call.row_stride) + channel;
  conv.in_stride = call.row_stride;
  conv.rows = span.rows;
  conv.dims = heads.count * dims;
  conv.weights = call.weights.conv + channel;
  conv.channels = shape.Channels();
  conv.state_type = shape.state_type;
  conv.tail = span.sections + call.place.tail +
              channel * (shape.state_type == StateType::kBF16 ? 2 : 4);
  conv.from_zero = span.position == 0;
  if (!is_value) conv.norm_dims = dims;
  if (heads.first < shape.key_heads) {
    conv.scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
  }
  // k's rows follow q's, and v's follow k's.
  conv.out = rows.q + At(rows.count, channel) + At(piece.row, dims);
  kernels_.conv(conv);
}

void HostGdn::Gates(const GdnCall& call, const GdnRows& rows,
                    const GdnPiece& piece, Heads heads) const {
  const GdnShape& shape = call.shape;
  const float* b = call.projected + At(piece.span.first_row, call.row_stride) +
                   shape.Channels() + shape.ValueWidth() + heads.first;
  const std::int64_t first = At(heads.first, rows.gate_stride) + piece.row;
  for (int r = 0; r < piece.span.rows; ++r, b += call.row_stride) {
    kernels_.gates(
        b, b + shape.value_heads, call.weights.decay_rate + heads.first,
        call.weights.dt_bias + heads.first, heads.count, rows.gate_stride,
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

void HostGdn::Step(const GdnCall& call, const GdnRows& rows,
                   const GdnPiece& piece, Heads heads) const {
  const RowSpan& span = piece.span;
  const GdnShape& shape = call.shape;
  const std::int64_t key = At(KeyHead(shape, heads.first), shape.key_dim);
  const std::int64_t gate = At(heads.first, rows.gate_stride);
  GdnStep step;
  step.state = reinterpret_cast<float*>(span.sections + call.place.state) +
               At(heads.first, shape.key_dim * shape.value_dim);
  step.heads = heads.count;
  step.heads_of_key =
      shape.heads == GdnHeads::kTiled ? 1 : shape.value_heads / shape.key_heads;
  step.key_dim = shape.key_dim;
  step.value_dim = shape.value_dim;
  step.from_zero = span.position == 0;
  step.q = rows.q + key;
  step.k = rows.k + key;
  step.v = rows.v + At(heads.first, shape.value_dim);
  step.beta = rows.beta + gate;
  step.decay = rows.decay + gate;
  step.gate_stride = rows.gate_stride;
  kernels_.step(step);
}

void HostGdn::Norm(const GdnCall& call, const GdnRows& rows,
                   const GdnPiece& piece, Heads heads) const {
  const GdnShape& shape = call.shape;
  GdnNormHead norm;
  norm.dims = shape.value_dim;
  norm.x = rows.v + (At(heads.first, rows.count) + piece.row) * norm.dims;
  norm.rows = piece.span.rows;
  norm.weight = call.weights.norm;
  norm.eps = call.weights.norm_eps;
  norm.z = call.projected + At(piece.span.first_row, call.row_stride) +
           shape.Channels() + heads.first * norm.dims;
  norm.z_stride = call.row_stride;
  norm.out = call.out + At(piece.span.first_row, shape.ValueWidth()) +
             heads.first * norm.dims;
  norm.out_stride = shape.ValueWidth();
  if (rows.count == 1) {  // each head is a row
    norm.rows = heads.count;
    norm.z_stride = norm.dims;
    norm.out_stride = norm.dims;
  }
  kernels_.gated_norm(norm);
}

}  // namespace holdfast::kernels
