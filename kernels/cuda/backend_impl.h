// CudaBackend's class: its files share it by mechanism. Memory and lifetime are
// in cuda_backend.cc, products and experts in backend_products.cc, rotation,
// attention and gated delta nets in backend_layers.cc, whole blocks in
// backend_pool.cc, tokens from logits in backend_sampling.cc.
#ifndef HOLDFAST_KERNELS_CUDA_BACKEND_IMPL_H_
#define HOLDFAST_KERNELS_CUDA_BACKEND_IMPL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/expert_tables.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kv_rows.h"
#include "kernels/cuda/launch_tables.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/weight_memory.h"
#include "kernels/cuda/weights.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::kernels::cuda {

// Output columns of a piece of widened weights are a multiple: what the matrix
// unit's tiles divide.
inline constexpr std::int64_t kPieceColumns = 256;

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

class BackendImpl final : public CudaBackend {
 public:
  BackendImpl(BackendInfo info, Stream stream, PinnedMemory staging,
              PinnedMemory arriving, int threads)
      : info_(std::move(info)),
        platform_(info_.choices),
        stream_(std::move(stream)),
        staging_(std::move(staging)),
        arriving_(std::move(arriving)),
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
  void Read(const void* from, std::size_t bytes, void* to) override;
  Status Synchronize() override;
  bool lost() const override { return lost_; }

  Status Write(const void* from, std::size_t bytes, void* to) override;
  StatusOr<std::vector<Sums>> ViewSums(
      const CacheLayout& layout,
      std::span<const std::byte* const> blocks) override;
  bool chooses_tokens() const override { return true; }
  void ChooseToken(const float* logits, int vocab, const TokenChoice& choice,
                   ChosenToken* out) override;
  std::vector<MemoryUse> memory() const override;

 private:
  // Keeps the first error for Synchronize.
  void Note(Status status) {
    if (!status.ok() && error_.ok()) error_ = std::move(status);
  }
  void Note(cudaError_t error, const char* operation) {
    if (error != cudaSuccess) Note(ToStatus(error, operation));
  }
  Status PrepareChoices(int vocab);
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
  const std::string platform_;  // device and runtime, of info_.choices
  Stream stream_;
  // Small copies to and from memory that is not pinned are many times slower
  // than a copy more: these are what the device reads and writes.
  PinnedMemory staging_;   // of Write and of weights
  PinnedMemory arriving_;  // of Read, until Synchronize
  std::size_t arriving_bytes_ = 0;
  struct Arrival {
    const std::byte* from;  // in arriving_
    std::size_t bytes;
    void* to;
  };
  std::vector<Arrival> arrivals_;
  ThreadPool pool_;
  WeightPieces weights_;
  std::unique_ptr<Gemm> gemm_;
  std::size_t choices_ = 0;  // of gemm_, in info_
  std::optional<LaunchTables> tables_;
  ExpertTables experts_;
  Limits limits_;
  Status error_;
  std::atomic<bool> lost_{false};
  // Bytes of the buffers given out that live, which may outlive this.
  const std::shared_ptr<std::size_t> buffers_ =
      std::make_shared<std::size_t>(0);
  std::size_t rope_bytes_ = 0;
  DeviceMemory narrow_;   // x of a product, bf16
  DeviceMemory widened_;  // weights of a product, bf16
  DeviceMemory partial_;  // attention in decode
  DeviceMemory gdn_;
  DeviceMemory routing_;
  DeviceMemory pairs_;    // experts' rows: gate and up, middle, out
  DeviceMemory results_;  // content sums
  DeviceMemory choice_;   // the token chosen, work space
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_BACKEND_IMPL_H_
