#include "kernels/host/host_backend.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/float16.h"
#include "kernels/host/attention.h"
#include "kernels/host/fetch.h"
#include "kernels/host/gdn.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/kv_rows.h"
#include "kernels/host/memory.h"
#include "kernels/host/moe.h"
#include "kernels/host/packed_matrix.h"
#include "kernels/host/products.h"
#include "kernels/host/rope_table.h"
#include "kernels/host/thread_pool.h"
#include "shared/cache_layout.h"

namespace holdfast::kernels {
namespace {

// Of ARITHMETIC.md.
constexpr int kArithmeticRevision = 1;
constexpr int kMostThreads = 1024;
// Rows of small operations that one task takes.
constexpr int kRowsPerTask = 16;

class HostBackend final : public Backend {
 public:
  HostBackend(const KernelTables& kernels, int threads, Exactness exactness)
      : pool_(threads),
        rows_(*kernels.row),
        gates_(*kernels.gate),
        products_(*kernels.product, pool_, exactness),
        attention_(*kernels.attention, pool_, exactness),
        gdn_(*kernels.gdn, pool_),
        moe_(*kernels.gate, *kernels.row, products_, pool_) {
    info_ = {"host", kernels.target, exactness, kArithmeticRevision, threads};
  }

  const BackendInfo& info() const override { return info_; }

  Status Prepare(const Limits& limits) override {
    HF_RETURN_IF_ERROR(products_.Prepare(limits));
    HF_RETURN_IF_ERROR(attention_.Prepare(limits));
    HF_RETURN_IF_ERROR(gdn_.Prepare(limits));
    return moe_.Prepare(limits);
  }

  StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    HF_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Make(bytes, "buffer"));
    return std::unique_ptr<Buffer>(new HostBuffer(std::move(memory)));
  }

  StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const WeightTensor> parts) override {
    HF_ASSIGN_OR_RETURN(auto matrix,
                        PackedMatrix::Pack(parts, weights_, pool_));
    return std::unique_ptr<Matrix>(std::move(matrix));
  }

  StatusOr<std::unique_ptr<Buffer>> UploadVector(
      const WeightTensor& tensor) override;

  StatusOr<std::unique_ptr<RopeTable>> MakeRopeTable(
      std::span<const float> inverse_frequencies, int max_positions) override {
    const DefinedFloatMode float_mode;
    HF_ASSIGN_OR_RETURN(
        auto table, HostRopeTable::Make(inverse_frequencies, max_positions));
    return std::unique_ptr<RopeTable>(std::move(table));
  }

  void EmbedRows(const Matrix& table, std::span<const std::int32_t> ids,
                 float* out) override;
  void RmsNorm(const float* x, const float* weight, float eps, int rows,
               int cols, float* out) override;
  void HeadNorm(float* x, const float* weight, float eps, int rows,
                int row_stride, int heads, int head_dim) override;
  void MatMul(const Matrix& w, const float* x, int rows, const float* bias,
              float* y) override;
  void Add(float* x, const float* y, int rows, int cols) override;
  void Rope(float* x, int row_stride, int heads, int head_dim,
            const RopeTable& table, std::span<const RowSpan> spans) override;
  void StoreKv(const KvShape& shape, int layer, const float* k, const float* v,
               int row_stride, std::span<const RowSpan> spans) override;
  void Attention(const KvShape& shape, int layer, const float* q,
                 int row_stride, int heads, float scale,
                 std::span<const RowSpan> spans, float* out) override;
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override;

  void SigmoidMul(float* x, const float* gate, int gate_stride, int rows,
                  int cols) override;
  void GatedDeltaNet(const GdnShape& shape, const GdnWeights& weights,
                     const GdnPlace& place, const float* projected,
                     int row_stride, std::span<const RowSpan> spans,
                     float* out) override;
  void MoeExperts(const MoeShape& shape, std::span<const ExpertWeights> experts,
                  const float* logits, int logits_stride, const float* x,
                  int rows, float* out) override;
  void AddGated(float* x, const float* y, const float* gate, int gate_stride,
                int rows, int cols) override;

  void CopyBlockRows(const KvShape& shape, const std::byte* from, int rows,
                     std::byte* to) override {
    CopyRows(shape, from, rows, to);
  }
  void ZeroBlockRows(const KvShape& shape, std::byte* block,
                     int first_row) override {
    ZeroRows(shape, block, first_row);
  }

  void Copy(const void* from, std::size_t bytes, void* to) override {
    std::memcpy(to, from, bytes);
  }
  void Read(const void* from, std::size_t bytes, void* to) override {
    std::memcpy(to, from, bytes);
  }
  Status Write(const void* from, std::size_t bytes, void* to) override {
    std::memcpy(to, from, bytes);
    return OkStatus();
  }
  Status Synchronize() override { return OkStatus(); }

 private:
  // Calls body(row) for every row; a few rows are not worth waking threads.
  template <typename Body>
  void ForRows(int rows, const Body& body) {
    const int tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    pool_.For(tasks, [&](int task, int) {
      const int end = std::min(rows, (task + 1) * kRowsPerTask);
      for (int row = task * kRowsPerTask; row < end; ++row) body(row);
    });
  }

  // Before the caller writes a row that all threads read next.
  void FetchRowToWrite(float* row, int rows, int cols) const {
    if (rows == 1 && pool_.threads() > 1) {
      FetchLinesToWrite(row, cols * sizeof(float));
    }
  }

  BackendInfo info_;
  ThreadPool pool_;
  WeightMemory weights_;
  const RowKernels& rows_;
  const GateKernels& gates_;
  HostProducts products_;
  HostAttention attention_;
  HostGdn gdn_;
  HostMoe moe_;
};

StatusOr<std::unique_ptr<Buffer>> HostBackend::UploadVector(
    const WeightTensor& tensor) {
  if (IsQuantised(tensor.type)) {
    return Unimplemented(DescribeTensor(tensor) +
                         ": a vector must be F32, F16 or BF16");
  }
  HF_RETURN_IF_ERROR(CheckTensor(tensor));
  if (!tensor.row_order.empty() && tensor.cols != 1) {
    return InvalidArgument(DescribeTensor(tensor) +
                           ": a row order needs one number a row");
  }
  const std::int64_t count = tensor.rows * tensor.cols;
  HF_ASSIGN_OR_RETURN(
      HostMemory memory,
      HostMemory::Make(count * sizeof(float), DescribeTensor(tensor)));
  const std::size_t element = WeightRowBytes(tensor.type, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from =
        tensor.row_order.empty() ? i : tensor.row_order[i];
    const std::byte* source = tensor.data + from * element;
    if (tensor.type == WeightType::kF32) {
      std::memcpy(memory.floats() + i, source, sizeof(float));
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, source, sizeof(bits));
    memory.floats()[i] =
        tensor.type == WeightType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
  return std::unique_ptr<Buffer>(new HostBuffer(std::move(memory)));
}

void HostBackend::EmbedRows(const Matrix& table,
                            std::span<const std::int32_t> ids, float* out) {
  const DefinedFloatMode float_mode;
  const auto& matrix = static_cast<const PackedMatrix&>(table);
  ForRows(static_cast<int>(ids.size()), [&](int row) {
    products_.EmbedRow(matrix, ids[row], out + row * matrix.cols());
  });
}

void HostBackend::RmsNorm(const float* x, const float* weight, float eps,
                          int rows, int cols, float* out) {
  const DefinedFloatMode float_mode;
  FetchRowToWrite(out, rows, cols);
  ForRows(rows, [&](int row) {
    const std::int64_t at = std::int64_t{row} * cols;
    rows_.rms_norm(x + at, weight, eps, cols, out + at);
  });
}

void HostBackend::HeadNorm(float* x, const float* weight, float eps, int rows,
                           int row_stride, int heads, int head_dim) {
  const DefinedFloatMode float_mode;
  ForRows(rows, [&](int row) {
    float* head = x + std::int64_t{row} * row_stride;
    for (int h = 0; h < heads; ++h, head += head_dim) {
      rows_.rms_norm(head, weight, eps, head_dim, head);
    }
  });
}

void HostBackend::MatMul(const Matrix& w, const float* x, int rows,
                         const float* bias, float* y) {
  const DefinedFloatMode float_mode;
  products_.MatMul(static_cast<const PackedMatrix&>(w), x, rows, bias, y);
}

void HostBackend::Add(float* x, const float* y, int rows, int cols) {
  const DefinedFloatMode float_mode;
  ForRows(rows, [&](int row) {
    const std::int64_t at = std::int64_t{row} * cols;
    rows_.add(x + at, y + at, cols);
  });
}

void HostBackend::Rope(float* x, int row_stride, int heads, int head_dim,
                       const RopeTable& table, std::span<const RowSpan> spans) {
  const DefinedFloatMode float_mode;
  const auto& rotary = static_cast<const HostRopeTable&>(table);
  for (const RowSpan& span : spans) {
    ForRows(span.rows, [&](int row) {
      float* head = x + std::int64_t{span.first_row + row} * row_stride;
      const int position = span.position + row;
      for (int h = 0; h < heads; ++h, head += head_dim) {
        rows_.rope(head, rotary.cos(position), rotary.sin(position),
                   rotary.rotary_dims());
      }
    });
  }
}

void HostBackend::StoreKv(const KvShape& shape, int layer, const float* k,
                          const float* v, int row_stride,
                          std::span<const RowSpan> spans) {
  for (const RowSpan& span : spans) {
    ForRows(span.rows, [&](int row) {
      const std::int64_t at = std::int64_t{span.first_row + row} * row_stride;
      const int position = span.position + row;
      WriteKvRow(shape, layer, position % kBlockTokens, k + at, v + at,
                 span.blocks[position / kBlockTokens]);
    });
  }
}

void HostBackend::Attention(const KvShape& shape, int layer, const float* q,
                            int row_stride, int heads, float scale,
                            std::span<const RowSpan> spans, float* out) {
  const DefinedFloatMode float_mode;
  const AttentionCall call = {shape, layer, q, row_stride, heads, scale, out};
  if (spans.size() == 1) {
    FetchRowToWrite(out, spans[0].rows, heads * shape.head_dim);
  }
  for (const RowSpan& span : spans) attention_.Run(call, span);
}

void HostBackend::SiluMul(const float* gate_up, int rows, int cols,
                          float* out) {
  const DefinedFloatMode float_mode;
  FetchRowToWrite(out, rows, cols);
  ForRows(rows, [&](int row) {
    const float* gate = gate_up + std::int64_t{row} * 2 * cols;
    rows_.silu_mul(gate, gate + cols, cols, out + std::int64_t{row} * cols);
  });
}

void HostBackend::SigmoidMul(float* x, const float* gate, int gate_stride,
                             int rows, int cols) {
  const DefinedFloatMode float_mode;
  ForRows(rows, [&](int row) {
    gates_.sigmoid_mul(gate + std::int64_t{row} * gate_stride, cols,
                       x + std::int64_t{row} * cols);
  });
}

void HostBackend::GatedDeltaNet(const GdnShape& shape,
                                const GdnWeights& weights,
                                const GdnPlace& place, const float* projected,
                                int row_stride, std::span<const RowSpan> spans,
                                float* out) {
  const DefinedFloatMode float_mode;
  gdn_.Run({shape, weights, place, projected, row_stride, spans, out});
}

void HostBackend::MoeExperts(const MoeShape& shape,
                             std::span<const ExpertWeights> experts,
                             const float* logits, int logits_stride,
                             const float* x, int rows, float* out) {
  const DefinedFloatMode float_mode;
  moe_.Run({shape, experts, logits, logits_stride, x, rows, out});
}

void HostBackend::AddGated(float* x, const float* y, const float* gate,
                           int gate_stride, int rows, int cols) {
  const DefinedFloatMode float_mode;
  ForRows(rows, [&](int row) {
    const std::int64_t at = std::int64_t{row} * cols;
    gates_.add_gated(y + at, gate[std::int64_t{row} * gate_stride], cols,
                     x + at);
  });
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeHostBackend(const HostOptions& options) {
  int threads = options.threads;
  if (threads == 0) {
    threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  if (threads < 0 || threads > kMostThreads) {
    return InvalidArgument("host backend: " + std::to_string(options.threads) +
                           " threads");
  }
  const KernelTables kernels = ChooseKernels();
  if (kernels.product == nullptr) {
    return FailedPrecondition(
        "host backend: this CPU has no fused multiply-add (AVX2 with FMA, "
        "AVX-512, NEON or SVE is needed)");
  }
  return std::unique_ptr<Backend>(
      new HostBackend(kernels, threads, options.exactness));
}

}  // namespace holdfast::kernels
