// What works on rows of sequences: rotation, rows of the pool, attention, gated
// delta nets.
#include <algorithm>
#include <string>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/gdn.h"

namespace holdfast::kernels::cuda {

std::optional<LaunchTable> BackendImpl::Table(std::span<const RowSpan> spans) {
  if (!tables_.has_value()) {
    Note(FailedPrecondition("CUDA backend: not prepared"));
    return std::nullopt;
  }
  auto table = tables_->Get(spans);
  if (!table.ok()) {
    Note(table.status());
    return std::nullopt;
  }
  return *table;
}

void BackendImpl::Rope(float* x, int row_stride, int heads, int head_dim,
                       const RopeTable& table, std::span<const RowSpan> spans) {
  const auto places = Table(spans);
  if (!places.has_value()) return;
  const auto& rotary = static_cast<const DeviceRopeTable&>(table);
  Note(cuda::Rope(stream_.get(), x, row_stride, heads, head_dim, rotary.cos(),
                  rotary.sin(), rotary.rotary_dims(), *places),
       "Rope");
}

void BackendImpl::StoreKv(const KvShape& shape, int layer, const float* k,
                          const float* v, int row_stride,
                          std::span<const RowSpan> spans) {
  if (shape.head_dim % kKChunkDims != 0) {
    Note(Unimplemented("CUDA backend: heads of " +
                       std::to_string(shape.head_dim) + " dims"));
    return;
  }
  const auto places = Table(spans);
  if (!places.has_value()) return;
  Note(cuda::StoreKv(stream_.get(), PoolShapeOf(shape, layer), k, v, row_stride,
                     *places),
       "StoreKv");
}

// As many spans at a time as the partial results of fit.
Status BackendImpl::Decode(const PoolShape& pool,
                           const AttentionArguments& arguments,
                           const LaunchTable& table,
                           std::span<const RowSpan> spans) {
  const std::size_t of_span = DecodePartialBytes(
      1, arguments.heads, pool.head_dim, table.most_positions);
  const int at_once = static_cast<int>(
      std::min<std::size_t>(partial_.bytes() / of_span, spans.size()));
  if (at_once < 1) {
    return FailedPrecondition("CUDA backend: attention over " +
                              std::to_string(table.most_positions) +
                              " positions passes what was prepared");
  }
  const int count = static_cast<int>(spans.size());
  for (int first = 0; first < count; first += at_once) {
    HF_CUDA_RETURN_IF_ERROR(
        DecodeAttention(stream_.get(), pool, arguments, table, first,
                        std::min(at_once, count - first), partial_.as<float>()),
        "DecodeAttention");
  }
  return OkStatus();
}

void BackendImpl::Attention(const KvShape& shape, int layer, const float* q,
                            int row_stride, int heads, float scale,
                            std::span<const RowSpan> spans, float* out) {
  const auto places = Table(spans);
  if (!places.has_value()) return;
  const PoolShape pool = PoolShapeOf(shape, layer);
  const AttentionArguments arguments = {q, row_stride, heads, scale, out};
  if (shape.state_type == StateType::kF32) {
    Note(PlainAttention(stream_.get(), pool, arguments, *places),
         "PlainAttention");
    return;
  }
  if (!AttentionHasHeadDim(shape.head_dim)) {
    Note(Unimplemented("CUDA backend: attention with heads of " +
                       std::to_string(shape.head_dim) +
                       " dims (64, 128 and 256 are)"));
    return;
  }
  const auto few = [](const RowSpan& span) { return span.rows <= kDecodeRows; };
  if (!std::all_of(spans.begin(), spans.end(), few)) {
    Note(PrefillAttention(stream_.get(), pool, arguments, *places),
         "PrefillAttention");
  }
  if (std::any_of(spans.begin(), spans.end(), few)) {
    Note(Decode(pool, arguments, *places, spans));
  }
}

void BackendImpl::GatedDeltaNet(const GdnShape& shape,
                                const GdnWeights& weights,
                                const GdnPlace& place, const float* projected,
                                int row_stride, std::span<const RowSpan> spans,
                                float* out) {
  const auto places = Table(spans);
  if (!places.has_value()) return;
  const std::size_t floats = GdnScratchFloats(shape, places->end_row);
  if (GdnRefusal(shape) != nullptr || gdn_.bytes() < floats * sizeof(float)) {
    Note(FailedPrecondition(
        "CUDA backend: a gated delta net that was not prepared for"));
    return;
  }
  Note(cuda::GatedDeltaNet(stream_.get(), shape, weights, place, projected,
                           row_stride, *places, gdn_.as<float>(), out),
       "GatedDeltaNet");
}

}  // namespace holdfast::kernels::cuda
