#include "tests/bench/timed_backend.h"

#include <chrono>

#include "fmt/format.h"

namespace holdfast::bench {

using kernels::RowSpan;
using kernels::Status;
using kernels::StatusOr;

template <typename Call>
void TimedBackend::Time(const std::string& name, std::size_t bytes,
                        const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  Operation& operation = operations_[name];
  ++operation.calls;
  operation.seconds += took.count();
  operation.bytes += static_cast<double>(bytes);
}

Status TimedBackend::Prepare(const kernels::Limits& limits) {
  return backend_.Prepare(limits);
}

StatusOr<std::unique_ptr<kernels::Buffer>> TimedBackend::Allocate(
    std::size_t bytes) {
  return backend_.Allocate(bytes);
}

StatusOr<std::unique_ptr<kernels::Matrix>> TimedBackend::PackMatrix(
    std::span<const kernels::WeightTensor> parts) {
  return backend_.PackMatrix(parts);
}

StatusOr<std::unique_ptr<kernels::Buffer>> TimedBackend::UploadVector(
    const kernels::WeightTensor& tensor) {
  return backend_.UploadVector(tensor);
}

StatusOr<std::unique_ptr<kernels::RopeTable>> TimedBackend::MakeRopeTable(
    std::span<const float> inverse_frequencies, int max_positions) {
  return backend_.MakeRopeTable(inverse_frequencies, max_positions);
}

void TimedBackend::EmbedRows(const kernels::Matrix& table,
                             std::span<const std::int32_t> ids, float* out) {
  Time("EmbedRows", 0, [&] { backend_.EmbedRows(table, ids, out); });
}

void TimedBackend::RmsNorm(const float* x, const float* weight, float eps,
                           int rows, int cols, float* out) {
  Time("RmsNorm", 0,
       [&] { backend_.RmsNorm(x, weight, eps, rows, cols, out); });
}

void TimedBackend::HeadNorm(float* x, const float* weight, float eps, int rows,
                            int row_stride, int heads, int head_dim) {
  Time("HeadNorm", 0, [&] {
    backend_.HeadNorm(x, weight, eps, rows, row_stride, heads, head_dim);
  });
}

void TimedBackend::MatMul(const kernels::Matrix& w, const float* x, int rows,
                          const float* bias, float* y) {
  Time(fmt::format("MatMul {} x {}", w.rows(), w.cols()), w.bytes(),
       [&] { backend_.MatMul(w, x, rows, bias, y); });
}

void TimedBackend::Add(float* x, const float* y, int rows, int cols) {
  Time("Add", 0, [&] { backend_.Add(x, y, rows, cols); });
}

void TimedBackend::Rope(float* x, int row_stride, int heads, int head_dim,
                        const kernels::RopeTable& table,
                        std::span<const RowSpan> spans) {
  Time("Rope", 0,
       [&] { backend_.Rope(x, row_stride, heads, head_dim, table, spans); });
}

void TimedBackend::StoreKv(const kernels::KvShape& shape, int layer,
                           const float* k, const float* v, int row_stride,
                           std::span<const RowSpan> spans) {
  Time("StoreKv", 0,
       [&] { backend_.StoreKv(shape, layer, k, v, row_stride, spans); });
}

void TimedBackend::Attention(const kernels::KvShape& shape, int layer,
                             const float* q, int row_stride, int heads,
                             float scale, std::span<const RowSpan> spans,
                             float* out) {
  std::size_t keys = 0;
  for (const RowSpan& span : spans) keys += span.position + span.rows;
  Time("Attention", 2 * keys * shape.TokenBytes(), [&] {
    backend_.Attention(shape, layer, q, row_stride, heads, scale, spans, out);
  });
}

void TimedBackend::SiluMul(const float* gate_up, int rows, int cols,
                           float* out) {
  Time("SiluMul", 0, [&] { backend_.SiluMul(gate_up, rows, cols, out); });
}

void TimedBackend::SigmoidMul(float* x, const float* gate, int gate_stride,
                              int rows, int cols) {
  Time("SigmoidMul", 0,
       [&] { backend_.SigmoidMul(x, gate, gate_stride, rows, cols); });
}

void TimedBackend::GatedDeltaNet(const kernels::GdnShape& shape,
                                 const kernels::GdnWeights& weights,
                                 const kernels::GdnPlace& place,
                                 const float* projected, int row_stride,
                                 std::span<const RowSpan> spans, float* out) {
  Time("GatedDeltaNet", 0, [&] {
    backend_.GatedDeltaNet(shape, weights, place, projected, row_stride, spans,
                           out);
  });
}

void TimedBackend::MoeExperts(const kernels::MoeShape& shape,
                              std::span<const kernels::ExpertWeights> experts,
                              const float* logits, int logits_stride,
                              const float* x, int rows, float* out) {
  Time("MoeExperts", 0, [&] {
    backend_.MoeExperts(shape, experts, logits, logits_stride, x, rows, out);
  });
}

void TimedBackend::AddGated(float* x, const float* y, const float* gate,
                            int gate_stride, int rows, int cols) {
  Time("AddGated", 0,
       [&] { backend_.AddGated(x, y, gate, gate_stride, rows, cols); });
}

void TimedBackend::CopyBlockRows(const kernels::KvShape& shape,
                                 const std::byte* from, int rows,
                                 std::byte* to) {
  backend_.CopyBlockRows(shape, from, rows, to);
}

void TimedBackend::ZeroBlockRows(const kernels::KvShape& shape,
                                 std::byte* block, int first_row) {
  backend_.ZeroBlockRows(shape, block, first_row);
}

void TimedBackend::Copy(const void* from, std::size_t bytes, void* to) {
  backend_.Copy(from, bytes, to);
}

void TimedBackend::Read(const void* from, std::size_t bytes, void* to) {
  backend_.Read(from, bytes, to);
}

Status TimedBackend::Write(const void* from, std::size_t bytes, void* to) {
  return backend_.Write(from, bytes, to);
}

Status TimedBackend::Synchronize() { return backend_.Synchronize(); }

}  // namespace holdfast::bench
