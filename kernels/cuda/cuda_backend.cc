#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/content_sum.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/expert_tables.h"
#include "kernels/cuda/gdn.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kv_rows.h"
#include "kernels/cuda/launch_tables.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"
#include "kernels/host/rope_table.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::kernels {
namespace cuda {
namespace {

constexpr int kArithmeticRevision = 1;
// Of packed rows on their way to the device.
constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
// Of weights widened to bf16 for one product; larger ones go in pieces.
constexpr std::size_t kWidenedBytes = std::size_t{256} << 20;
// Of attention's partial results in decode, at least one sequence's.
constexpr std::size_t kPartialBytes = std::size_t{32} << 20;
// Output columns of a piece: what the matrix unit's tiles divide.
constexpr std::int64_t kPieceColumns = 256;

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(DeviceMemory memory) : memory_(std::move(memory)) {
    data_ = memory_.data();
    bytes_ = memory_.bytes();
  }

 private:
  DeviceMemory memory_;
};

class DeviceRopeTable final : public RopeTable {
 public:
  DeviceRopeTable(DeviceMemory cos, DeviceMemory sin, int rotary_dims,
                  int max_positions)
      : cos_(std::move(cos)), sin_(std::move(sin)) {
    rotary_dims_ = rotary_dims;
    max_positions_ = max_positions;
  }
  const float* cos() const { return cos_.as<float>(); }
  const float* sin() const { return sin_.as<float>(); }

 private:
  DeviceMemory cos_;
  DeviceMemory sin_;
};

StatusOr<DeviceMemory> UploadFloats(std::span<const float> numbers,
                                    std::string_view what) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(numbers.size_bytes(), what));
  HF_RETURN_IF_ERROR(
      CopyToDevice(memory.data(), numbers.data(), numbers.size_bytes(), what));
  return memory;
}

class Impl final : public CudaBackend {
 public:
  Impl(BackendInfo info, Stream stream, PinnedMemory staging, int threads)
      : info_(std::move(info)),
        stream_(std::move(stream)),
        staging_(std::move(staging)),
        pool_(threads) {}

  const BackendInfo& info() const override { return info_; }
  Status Prepare(const Limits& limits) override;
  StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override;
  StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const WeightTensor> parts) override;
  StatusOr<std::unique_ptr<Buffer>> UploadVector(
      const WeightTensor& tensor) override;
  StatusOr<std::unique_ptr<RopeTable>> MakeRopeTable(
      std::span<const float> inverse_frequencies, int max_positions) override;

  void EmbedRows(const Matrix& table, std::span<const std::int32_t> ids,
                 float* out) override;
  void RmsNorm(const float* x, const float* weight, float eps, int rows,
               int cols, float* out) override {
    Note(cuda::RmsNorm(stream_.get(), x, weight, eps, rows, cols, out),
         "RmsNorm");
  }
  void HeadNorm(float* x, const float* weight, float eps, int rows,
                int row_stride, int heads, int head_dim) override {
    Note(cuda::HeadNorm(stream_.get(), x, weight, eps, rows, row_stride, heads,
                        head_dim),
         "HeadNorm");
  }
  void MatMul(const Matrix& w, const float* x, int rows, const float* bias,
              float* y) override;
  void Add(float* x, const float* y, int rows, int cols) override {
    Note(cuda::Add(stream_.get(), x, y, std::int64_t{rows} * cols), "Add");
  }
  void Rope(float* x, int row_stride, int heads, int head_dim,
            const RopeTable& table, std::span<const RowSpan> spans) override;
  void StoreKv(const KvShape& shape, int layer, const float* k, const float* v,
               int row_stride, std::span<const RowSpan> spans) override;
  void Attention(const KvShape& shape, int layer, const float* q,
                 int row_stride, int heads, float scale,
                 std::span<const RowSpan> spans, float* out) override;
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override {
    Note(cuda::SiluMul(stream_.get(), gate_up, rows, cols, out), "SiluMul");
  }
  void SigmoidMul(float* x, const float* gate, int gate_stride, int rows,
                  int cols) override {
    Note(cuda::SigmoidMul(stream_.get(), x, gate, gate_stride, rows, cols),
         "SigmoidMul");
  }
  void GatedDeltaNet(const GdnShape& shape, const GdnWeights& weights,
                     const GdnPlace& place, const float* projected,
                     int row_stride, std::span<const RowSpan> spans,
                     float* out) override;
  void MoeExperts(const MoeShape& shape, std::span<const ExpertWeights> experts,
                  const float* logits, int logits_stride, const float* x,
                  int rows, float* out) override;
  void AddGated(float* x, const float* y, const float* gate, int gate_stride,
                int rows, int cols) override {
    Note(cuda::AddGated(stream_.get(), x, y, gate, gate_stride, rows, cols),
         "AddGated");
  }

  void CopyBlockRows(const KvShape& shape, const std::byte* from, int rows,
                     std::byte* to) override;
  void ZeroBlockRows(const KvShape& shape, std::byte* block,
                     int first_row) override {
    if (first_row >= kBlockTokens) return;
    Note(ZeroRows(stream_.get(), PoolShapeOf(shape, 0), shape.layers, block,
                  first_row),
         "ZeroBlockRows");
  }
  void Copy(const void* from, std::size_t bytes, void* to) override {
    Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                         stream_.get()),
         "Copy");
  }
  void Read(const void* from, std::size_t bytes, void* to) override {
    Note(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
        "Read");
  }
  Status Synchronize() override;

  Status Write(const void* from, std::size_t bytes, void* to) override;
  StatusOr<std::vector<Sums>> ViewSums(
      const CacheLayout& layout,
      std::span<const std::byte* const> blocks) override;
  std::vector<MemoryUse> memory() const override;

 private:
  // Keeps the first error for Synchronize.
  void Note(Status status) {
    if (!status.ok() && error_.ok()) error_ = std::move(status);
  }
  void Note(cudaError_t error, const char* operation) {
    if (error != cudaSuccess) Note(ToStatus(error, operation));
  }
  // The spans' table; none after an error.
  std::optional<LaunchTable> Table(std::span<const RowSpan> spans);
  Status ManyRows(const WeightView& w, const float* x, int rows,
                  const float* bias, float* y, std::int64_t y_stride);
  Status Decode(const PoolShape& pool, const AttentionArguments& arguments,
                const LaunchTable& table, std::span<const RowSpan> spans);
  Status Experts(const MoeShape& shape, const ExpertLayer& layer,
                 const float* logits, int logits_stride, const float* x,
                 int rows, float* out);
  Status PairProducts(const std::vector<ExpertPart>& parts, const float* x,
                      int x_share, int rows, const MoeShape& shape, float* y,
                      std::int64_t y_stride);

  BackendInfo info_;
  Stream stream_;
  PinnedMemory staging_;
  ThreadPool pool_;
  std::unique_ptr<Gemm> gemm_;
  std::size_t choices_ = 0;  // of gemm_, in info_
  std::optional<LaunchTables> tables_;
  ExpertTables experts_;
  Limits limits_;
  Status error_;
  DeviceMemory narrow_;   // x of a product, bf16
  DeviceMemory widened_;  // weights of a product, bf16
  DeviceMemory partial_;  // attention in decode
  DeviceMemory gdn_;
  DeviceMemory routing_;
  DeviceMemory pairs_;  // experts' rows: gate and up, middle, out
  DeviceMemory sums_;
};

Status Impl::Prepare(const Limits& limits) {
  if (limits.max_head_dim > 0 && limits.max_head_dim > 256) {
    return Unimplemented("CUDA backend: heads of " +
                         std::to_string(limits.max_head_dim) + " dims");
  }
  const auto rows = static_cast<std::size_t>(limits.max_rows);
  HF_ASSIGN_OR_RETURN(
      LaunchTables tables,
      LaunchTables::Make(stream_.get(), limits.max_rows, limits.max_positions));
  tables_.emplace(std::move(tables));
  HF_ASSIGN_OR_RETURN(gemm_, Gemm::Make(stream_.get(), limits.max_rows));
  HF_ASSIGN_OR_RETURN(narrow_,
                      DeviceMemory::Make(rows * PaddedCols(limits.max_cols) * 2,
                                         "activations of a product"));
  HF_ASSIGN_OR_RETURN(widened_,
                      DeviceMemory::Make(kWidenedBytes, "widened weights"));
  HF_ASSIGN_OR_RETURN(
      partial_,
      DeviceMemory::Make(
          std::max(kPartialBytes,
                   DecodePartialBytes(1, limits.max_heads, limits.max_head_dim,
                                      limits.max_positions)),
          "attention's partial results"));
  if (limits.gdn.value_heads > 0 || limits.gdn.key_heads > 0) {
    if (const char* why = GdnRefusal(limits.gdn); why != nullptr) {
      return Unimplemented(std::string("CUDA backend: gated delta net: ") +
                           why);
    }
    HF_ASSIGN_OR_RETURN(
        gdn_, DeviceMemory::Make(
                  GdnScratchFloats(limits.gdn, limits.max_rows) * sizeof(float),
                  "gated delta nets"));
  }
  if (limits.moe.experts > 0) {
    if (limits.moe.top_k < 1 || limits.moe.top_k > kMostTopK ||
        limits.moe.top_k > limits.moe.experts) {
      return Unimplemented("CUDA backend: " + std::to_string(limits.moe.top_k) +
                           " of " + std::to_string(limits.moe.experts) +
                           " experts a row");
    }
    HF_ASSIGN_OR_RETURN(
        routing_, DeviceMemory::Make(RoutingBytes(limits.moe, limits.max_rows),
                                     "routing"));
    const std::size_t floats = 3 * limits.moe.ffn + limits.moe.hidden;
    HF_ASSIGN_OR_RETURN(pairs_, DeviceMemory::Make(rows * limits.moe.top_k *
                                                       floats * sizeof(float),
                                                   "experts' rows"));
  }
  HF_ASSIGN_OR_RETURN(sums_, DeviceMemory::Make(1 << 20, "content sums"));
  limits_ = limits;
  return OkStatus();
}

StatusOr<std::unique_ptr<Buffer>> Impl::Allocate(std::size_t bytes) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(bytes, "a buffer"));
  return std::unique_ptr<Buffer>(new DeviceBuffer(std::move(memory)));
}

StatusOr<std::unique_ptr<Matrix>> Impl::PackMatrix(
    std::span<const WeightTensor> parts) {
  HF_ASSIGN_OR_RETURN(auto matrix, CudaMatrix::Pack(parts, staging_, pool_));
  return std::unique_ptr<Matrix>(std::move(matrix));
}

StatusOr<std::unique_ptr<Buffer>> Impl::UploadVector(
    const WeightTensor& tensor) {
  HF_ASSIGN_OR_RETURN(const std::vector<float> numbers, WidenVector(tensor));
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      UploadFloats(numbers, "vector " + tensor.name));
  return std::unique_ptr<Buffer>(new DeviceBuffer(std::move(memory)));
}

StatusOr<std::unique_ptr<RopeTable>> Impl::MakeRopeTable(
    std::span<const float> inverse_frequencies, int max_positions) {
  HF_ASSIGN_OR_RETURN(const auto host,
                      HostRopeTable::Make(inverse_frequencies, max_positions));
  const std::size_t half = inverse_frequencies.size();
  std::vector<float> cos(half * max_positions);
  std::vector<float> sin(half * max_positions);
  for (int p = 0; p < max_positions; ++p) {
    std::copy_n(host->cos(p), half, &cos[p * half]);
    std::copy_n(host->sin(p), half, &sin[p * half]);
  }
  HF_ASSIGN_OR_RETURN(DeviceMemory cosines, UploadFloats(cos, "cosines"));
  HF_ASSIGN_OR_RETURN(DeviceMemory sines, UploadFloats(sin, "sines"));
  return std::unique_ptr<RopeTable>(
      new DeviceRopeTable(std::move(cosines), std::move(sines),
                          host->rotary_dims(), max_positions));
}

std::optional<LaunchTable> Impl::Table(std::span<const RowSpan> spans) {
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

void Impl::EmbedRows(const Matrix& table, std::span<const std::int32_t> ids,
                     float* out) {
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
Status Impl::ManyRows(const WeightView& w, const float* x, int rows,
                      const float* bias, float* y, std::int64_t y_stride) {
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

void Impl::MatMul(const Matrix& w, const float* x, int rows, const float* bias,
                  float* y) {
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
    info_.choices = gemm_->Record();
  }
}

void Impl::Rope(float* x, int row_stride, int heads, int head_dim,
                const RopeTable& table, std::span<const RowSpan> spans) {
  const auto places = Table(spans);
  if (!places.has_value()) return;
  const auto& rotary = static_cast<const DeviceRopeTable&>(table);
  Note(cuda::Rope(stream_.get(), x, row_stride, heads, head_dim, rotary.cos(),
                  rotary.sin(), rotary.rotary_dims(), *places),
       "Rope");
}

void Impl::StoreKv(const KvShape& shape, int layer, const float* k,
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
Status Impl::Decode(const PoolShape& pool, const AttentionArguments& arguments,
                    const LaunchTable& table, std::span<const RowSpan> spans) {
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

void Impl::Attention(const KvShape& shape, int layer, const float* q,
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

void Impl::GatedDeltaNet(const GdnShape& shape, const GdnWeights& weights,
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

Status Impl::PairProducts(const std::vector<ExpertPart>& parts, const float* x,
                          int x_share, int rows, const MoeShape& shape,
                          float* y, std::int64_t y_stride) {
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

Status Impl::Experts(const MoeShape& shape, const ExpertLayer& layer,
                     const float* logits, int logits_stride, const float* x,
                     int rows, float* out) {
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

void Impl::MoeExperts(const MoeShape& shape,
                      std::span<const ExpertWeights> experts,
                      const float* logits, int logits_stride, const float* x,
                      int rows, float* out) {
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

void Impl::CopyBlockRows(const KvShape& shape, const std::byte* from, int rows,
                         std::byte* to) {
  const std::size_t layer_bytes = shape.TokenBytes() * kBlockTokens;
  const std::size_t granules =
      static_cast<std::size_t>(rows + kGranuleTokens - 1) / kGranuleTokens;
  const std::size_t bytes = granules * kGranuleTokens * shape.TokenBytes();
  if (bytes == 0) return;
  Note(cudaMemcpy2DAsync(to, layer_bytes, from, layer_bytes, bytes,
                         2 * static_cast<std::size_t>(shape.layers),
                         cudaMemcpyDeviceToDevice, stream_.get()),
       "CopyBlockRows");
}

Status Impl::Synchronize() {
  Note(cudaStreamSynchronize(stream_.get()), "the device");
  return std::exchange(error_, OkStatus());
}

Status Impl::Write(const void* from, std::size_t bytes, void* to) {
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()),
      "writing to the device");
  HF_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_.get()),
                          "writing to the device");
  return OkStatus();
}

StatusOr<std::vector<CudaBackend::Sums>> Impl::ViewSums(
    const CacheLayout& layout, std::span<const std::byte* const> blocks) {
  std::vector<Sums> sums(layout.views.size());
  static_assert(sizeof(Sums) == 2 * sizeof(unsigned long long));
  const std::size_t sum_bytes = sums.size() * sizeof(Sums);
  if (sum_bytes + blocks.size_bytes() > sums_.bytes()) {
    return FailedPrecondition("CUDA backend: sums over " +
                              std::to_string(blocks.size()) + " blocks");
  }
  HF_RETURN_IF_ERROR(Write(sums.data(), sum_bytes, sums_.data()));
  std::byte* const table = sums_.data() + sum_bytes;
  HF_RETURN_IF_ERROR(Write(blocks.data(), blocks.size_bytes(), table));
  std::size_t offset = 0;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    const std::size_t bytes = layout.views[v].bytes_per_token * kBlockTokens;
    HF_CUDA_RETURN_IF_ERROR(
        AddContentSums(stream_.get(),
                       reinterpret_cast<const std::byte* const*>(table),
                       static_cast<int>(blocks.size()), offset, bytes,
                       sums_.as<unsigned long long>() + 2 * v),
        "content sums");
    offset += bytes;
  }
  Read(sums_.data(), sum_bytes, sums.data());
  HF_RETURN_IF_ERROR(Synchronize());
  return sums;
}

std::vector<MemoryUse> Impl::memory() const {
  return {
      {"block tables", tables_.has_value() ? tables_->device_bytes() : 0},
      {"products' workspace", gemm_ == nullptr ? 0 : gemm_->workspace_bytes()},
      {"activations of a product", narrow_.bytes()},
      {"widened weights", widened_.bytes()},
      {"attention's partial results", partial_.bytes()},
      {"gated delta nets", gdn_.bytes()},
      {"experts", routing_.bytes() + pairs_.bytes()},
      {"content sums", sums_.bytes()},
  };
}

}  // namespace
}  // namespace cuda

StatusOr<std::unique_ptr<CudaBackend>> MakeCudaBackend(
    const CudaOptions& options) {
  using cuda::ToStatus;
  int count = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&count), "CUDA devices");
  if (options.device < 0 || options.device >= count) {
    return NotFound("CUDA device " + std::to_string(options.device) + " of " +
                    std::to_string(count));
  }
  HF_CUDA_RETURN_IF_ERROR(cudaSetDevice(options.device), "CUDA device");
  cudaDeviceProp properties = {};
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, options.device),
                          "CUDA device properties");
  int runtime = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaRuntimeGetVersion(&runtime),
                          "CUDA runtime version");
  const int threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  BackendInfo info;
  info.name = "cuda";
  info.target = std::string(properties.name) + " sm_" +
                std::to_string(properties.major) +
                std::to_string(properties.minor);
  info.exactness = Exactness::kGrid;
  info.arithmetic_revision = cuda::kArithmeticRevision;
  info.threads = threads;
  info.choices = "CUDA runtime " + std::to_string(runtime);
  HF_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::MakeStream());
  HF_ASSIGN_OR_RETURN(
      cuda::PinnedMemory staging,
      cuda::PinnedMemory::Make(cuda::kStagingBytes, "weights on their way"));
  return std::unique_ptr<CudaBackend>(new cuda::Impl(
      std::move(info), std::move(stream), std::move(staging), threads));
}

}  // namespace holdfast::kernels
