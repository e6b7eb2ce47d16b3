// A backend that notes how long each operation took.
#ifndef HOLDFAST_TESTS_BENCH_TIMED_BACKEND_H_
#define HOLDFAST_TESTS_BENCH_TIMED_BACKEND_H_

#include <map>
#include <memory>
#include <span>
#include <string>

#include "kernels/backend.h"

namespace holdfast::bench {

// Passes everything on to another backend, which must outlive this and end an
// operation before it returns. One thread at a time.
class TimedBackend final : public kernels::Backend {
 public:
  struct Operation {
    long calls = 0;
    double seconds = 0;
    // Of weights, and of keys and values, each read once in a call.
    double bytes = 0;
  };

  explicit TimedBackend(kernels::Backend* backend) : backend_(*backend) {}

  // By name: of products also the matrix's shape. Since the last Reset.
  const std::map<std::string, Operation>& operations() const {
    return operations_;
  }
  void Reset() { operations_.clear(); }

  const kernels::BackendInfo& info() const override { return backend_.info(); }
  kernels::Status Prepare(const kernels::Limits& limits) override;
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(
      std::size_t bytes) override;
  kernels::StatusOr<std::unique_ptr<kernels::Matrix>> PackMatrix(
      std::span<const kernels::WeightTensor> parts) override;
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> UploadVector(
      const kernels::WeightTensor& tensor) override;
  kernels::StatusOr<std::unique_ptr<kernels::RopeTable>> MakeRopeTable(
      std::span<const float> inverse_frequencies, int max_positions) override;
  void EmbedRows(const kernels::Matrix& table,
                 std::span<const std::int32_t> ids, float* out) override;
  void RmsNorm(const float* x, const float* weight, float eps, int rows,
               int cols, float* out) override;
  void HeadNorm(float* x, const float* weight, float eps, int rows,
                int row_stride, int heads, int head_dim) override;
  void MatMul(const kernels::Matrix& w, const float* x, int rows,
              const float* bias, float* y) override;
  void Add(float* x, const float* y, int rows, int cols) override;
  void Rope(float* x, int row_stride, int heads, int head_dim,
            const kernels::RopeTable& table,
            std::span<const kernels::RowSpan> spans) override;
  void StoreKv(const kernels::KvShape& shape, int layer, const float* k,
               const float* v, int row_stride,
               std::span<const kernels::RowSpan> spans) override;
  void Attention(const kernels::KvShape& shape, int layer, const float* q,
                 int row_stride, int heads, float scale,
                 std::span<const kernels::RowSpan> spans, float* out) override;
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override;
  void SigmoidMul(float* x, const float* gate, int gate_stride, int rows,
                  int cols) override;
  void GatedDeltaNet(const kernels::GdnShape& shape,
                     const kernels::GdnWeights& weights,
                     const kernels::GdnPlace& place, const float* projected,
                     int row_stride, std::span<const kernels::RowSpan> spans,
                     float* out) override;
  void MoeExperts(const kernels::MoeShape& shape,
                  std::span<const kernels::ExpertWeights> experts,
                  const float* logits, int logits_stride, const float* x,
                  int rows, float* out) override;
  void AddGated(float* x, const float* y, const float* gate, int gate_stride,
                int rows, int cols) override;
  void CopyBlockRows(const kernels::KvShape& shape, const std::byte* from,
                     int rows, std::byte* to) override;
  void ZeroBlockRows(const kernels::KvShape& shape, std::byte* block,
                     int first_row) override;
  void Copy(const void* from, std::size_t bytes, void* to) override;
  void Read(const void* from, std::size_t bytes, void* to) override;
  kernels::Status Write(const void* from, std::size_t bytes, void* to) override;
  kernels::Status Synchronize() override;

 private:
  template <typename Call>
  void Time(const std::string& name, std::size_t bytes, const Call& call);

  kernels::Backend& backend_;
  std::map<std::string, Operation> operations_;
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_TIMED_BACKEND_H_
