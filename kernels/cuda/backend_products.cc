// Products with weights: embeddings, dense layers, experts.
#include <algorithm>
#include <string>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/products.h"

namespace holdfast::kernels::cuda {

void BackendImpl::EmbedRows(const Matrix& table,
                            std::span<const std::int32_t> ids, float* out) {
  const auto& parts = static_cast<const CudaMatrix&>(table).parts();
  if (parts.size() != 1 || !tables_.has_value()) {
    Note(Unimplemented("CUDA backend: embeddings of joined tensors"));
    return;
  }
  const auto device_ids = tables_->Ids(ids);
  if (!device_ids.ok()) {
    Note(device_ids.status());
    return;
  }
  Note(cuda::EmbedRows(stream_.get(), parts[0].view, *device_ids,
                       static_cast<int>(ids.size()), out),
       "EmbedRows");
}

// Weights that are not bf16 are widened in pieces of what the scratch holds.
Status BackendImpl::ManyRows(const WeightView& w, const float* x, int rows,
                             const float* bias, float* y,
                             std::int64_t y_stride) {
  const std::int64_t stride = PaddedCols(w.cols);
  auto* const narrow = narrow_.as<std::uint16_t>();
  if (narrow_.bytes() < rows * stride * sizeof(*narrow)) {
    return FailedPrecondition(
        "CUDA backend: a product of " + std::to_string(rows) + " rows of " +
        std::to_string(w.cols) + " passes what was prepared");
  }
  HF_CUDA_RETURN_IF_ERROR(NarrowRows(stream_.get(), x, rows, w.cols, narrow),
                          "NarrowRows");
  std::int64_t piece = w.rows;
  if (w.type != WeightType::kBF16) {
    piece = static_cast<std::int64_t>(widened_.bytes()) / (2 * stride) /
            kPieceColumns * kPieceColumns;
    piece = std::min(piece, w.rows);
  }
  if (piece < 1) {
    return ResourceExhausted("CUDA backend: weights of " +
                             std::to_string(w.cols) +
                             " columns pass the room for widening");
  }
  for (std::int64_t first = 0; first < w.rows; first += piece) {
    const std::int64_t columns = std::min(piece, w.rows - first);
    const auto* weights = reinterpret_cast<const std::uint16_t*>(w.low);
    if (w.type != WeightType::kBF16) {
      HF_CUDA_RETURN_IF_ERROR(WidenToBf16(stream_.get(), w, first, columns,
                                          widened_.as<std::uint16_t>()),
                              "WidenToBf16");
      weights = widened_.as<const std::uint16_t>();
    }
    HF_RETURN_IF_ERROR(gemm_->Multiply(weights, columns, narrow, rows, w.cols,
                                       stride, y + first, y_stride));
  }
  if (bias != nullptr) {
    HF_CUDA_RETURN_IF_ERROR(AddBias(stream_.get(), y, y_stride, bias, rows,
                                    static_cast<int>(w.rows)),
                            "AddBias");
  }
  return OkStatus();
}

void BackendImpl::MatMul(const Matrix& w, const float* x, int rows,
                         const float* bias, float* y) {
  if (gemm_ == nullptr) {
    Note(FailedPrecondition("CUDA backend: not prepared"));
    return;
  }
  for (const CudaMatrix::Part& part :
       static_cast<const CudaMatrix&>(w).parts()) {
    const float* part_bias =
        bias == nullptr ? nullptr : bias + part.first_column;
    float* const out = y + part.first_column;
    if (rows <= kFewRows) {
      Note(FewRowProduct(stream_.get(), part.view, x, rows, part_bias, out,
                         w.rows()),
           "FewRowProduct");
    } else {
      Note(ManyRows(part.view, x, rows, part_bias, out, w.rows()));
    }
  }
  if (gemm_->choices() != choices_) {
    choices_ = gemm_->choices();
    info_.choices = platform_ + "; " + gemm_->Record();
  }
}

Status BackendImpl::PairProducts(const std::vector<ExpertPart>& parts,
                                 const float* x, int x_share, int rows,
                                 const MoeShape& shape, float* y,
                                 std::int64_t y_stride) {
  const Routing routing = CarveRouting(shape, rows, routing_.data());
  for (const ExpertPart& part : parts) {
    PairProduct product;
    product.views = part.views;
    product.type = part.type;
    product.outputs = static_cast<int>(part.rows);
    product.cols = static_cast<int>(part.cols);
    product.x = x;
    product.x_share = x_share;
    product.y = y + part.first_column;
    product.y_stride = y_stride;
    HF_CUDA_RETURN_IF_ERROR(
        rows <= kFewRows ? FewPairProduct(stream_.get(), product, routing,
                                          rows * shape.top_k)
                         : GroupedProduct(stream_.get(), product, routing,
                                          MostTiles(shape, rows)),
        "experts' product");
  }
  return OkStatus();
}

Status BackendImpl::Experts(const MoeShape& shape, const ExpertLayer& layer,
                            const float* logits, int logits_stride,
                            const float* x, int rows, float* out) {
  const Routing routing = CarveRouting(shape, rows, routing_.data());
  const int pairs = rows * shape.top_k;
  float* const gate_up = pairs_.as<float>();
  float* const middle = gate_up + std::int64_t{pairs} * 2 * shape.ffn;
  float* const down = middle + std::int64_t{pairs} * shape.ffn;
  HF_CUDA_RETURN_IF_ERROR(
      Route(stream_.get(), shape, logits, logits_stride, rows, routing),
      "routing");
  HF_RETURN_IF_ERROR(PairProducts(layer.gate_up, x, shape.top_k, rows, shape,
                                  gate_up, 2 * shape.ffn));
  HF_CUDA_RETURN_IF_ERROR(
      cuda::SiluMul(stream_.get(), gate_up, pairs, shape.ffn, middle),
      "experts' SiluMul");
  HF_RETURN_IF_ERROR(
      PairProducts(layer.down, middle, 1, rows, shape, down, shape.hidden));
  HF_CUDA_RETURN_IF_ERROR(
      CombinePairs(stream_.get(), shape, routing, down, rows, out),
      "experts' sum");
  return OkStatus();
}

void BackendImpl::MoeExperts(const MoeShape& shape,
                             std::span<const ExpertWeights> experts,
                             const float* logits, int logits_stride,
                             const float* x, int rows, float* out) {
  if (rows > limits_.max_rows || shape.experts != limits_.moe.experts ||
      shape.top_k != limits_.moe.top_k || shape.ffn > limits_.moe.ffn ||
      shape.hidden > limits_.moe.hidden) {
    Note(
        FailedPrecondition("CUDA backend: experts that were not prepared for"));
    return;
  }
  const auto layer = experts_.Get(experts);
  if (!layer.ok()) {
    Note(layer.status());
    return;
  }
  Note(Experts(shape, **layer, logits, logits_stride, x, rows, out));
}

}  // namespace holdfast::kernels::cuda
