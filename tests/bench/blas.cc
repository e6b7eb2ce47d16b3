#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/blas.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/host/vector_math-inl.h"
#include "tests/bench/blas.h"
#ifdef HOLDFAST_HAVE_OPENBLAS
#include <cblas.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace holdfast::bench {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::DF;
using kernels::HWY_NAMESPACE::ExpOrZero;
using kernels::HWY_NAMESPACE::LaneCount;

// One row over one tile of `padded` scores, those from `keys` on masked: the
// running largest score and sum, the scores as weights, and the outputs so far
// scaled to the new largest.
void RunningSoftmax(float* scores, int keys, int padded, float* largest,
                    float* sum, float* out, int dims) {
  const DF d;
  const int step = LaneCount();
  for (int j = keys; j < padded; ++j) {
    scores[j] = -std::numeric_limits<float>::infinity();
  }
  auto top = hn::Set(d, *largest);
  for (int j = 0; j < padded; j += step) {
    top = hn::Max(top, hn::LoadU(d, scores + j));
  }
  top = hn::MaxOfLanes(d, top);
  auto total = hn::Zero(d);
  for (int j = 0; j < padded; j += step) {
    const auto weight = ExpOrZero(hn::Sub(hn::LoadU(d, scores + j), top));
    hn::StoreU(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  const auto old = ExpOrZero(hn::Sub(hn::Set(d, *largest), top));
  const float old_scale = hn::GetLane(old);
  *sum = *sum * old_scale + hn::GetLane(hn::SumOfLanes(d, total));
  *largest = hn::GetLane(top);
  if (old_scale == 1.0f) return;
  for (int i = 0; i < dims; i += step) {
    hn::StoreU(hn::Mul(hn::LoadU(d, out + i), old), d, out + i);
  }
}

#else
void RunningSoftmax(float*, int, int, float*, float*, float*, int) {}
#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::bench {

HWY_EXPORT(RunningSoftmax);

#ifdef HOLDFAST_HAVE_OPENBLAS

std::string BlasCore() { return openblas_get_corename(); }

void BlasProduct(const float* x, const float* w, int rows, int outputs,
                 int cols, int threads, float* y) {
  openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, cols, 1,
              x, cols, w, cols, 0, y, outputs);
}

namespace {

constexpr int kTile = 256;       // keys
constexpr int kBlockRows = 384;  // whose scores stay in the cache

}  // namespace

BlasFlash::BlasFlash(const FlashShape& shape, int threads, std::vector<float> q,
                     std::vector<float> k, std::vector<float> v)
    : shape_(shape),
      q_(std::move(q)),
      k_(std::move(k)),
      v_(std::move(v)),
      out_(q_.size()),
      scratch_(threads, std::vector<float>(kBlockRows * (kTile + 2))) {}

void BlasFlash::Run(kernels::ThreadPool& pool) {
  openblas_set_num_threads(1);  // each task calls for itself
  const int blocks = (shape_.rows() + kBlockRows - 1) / kBlockRows;
  pool.For(shape_.kv_heads * blocks, [&](int task, int thread) {
    const int first = task / shape_.kv_heads * kBlockRows;
    RunRows(task % shape_.kv_heads, first,
            std::min(kBlockRows, shape_.rows() - first),
            scratch_[thread].data());
  });
}

void BlasFlash::RunRows(int kv_head, int first_row, int rows, float* scratch) {
  const int dims = shape_.head_dim;
  const std::size_t row_at =
      (std::size_t(kv_head) * shape_.rows() + first_row) * dims;
  const std::size_t key_at = std::size_t(kv_head) * shape_.keys() * dims;
  float* const out = out_.data() + row_at;
  float* const largest = scratch + kBlockRows * kTile;
  float* const sums = largest + kBlockRows;
  std::fill_n(largest, rows, -1e30f);
  std::fill_n(sums, rows, 0.0f);
  std::fill_n(out, std::size_t(rows) * dims, 0.0f);
  const int last_key = shape_.position + (first_row + rows - 1) / shape_.group;
  for (int start = 0; start <= last_key; start += kTile) {
    const int keys = std::min(kTile, shape_.keys() - start);
    const float* const k = k_.data() + key_at + std::size_t(start) * dims;
    const float* const v = v_.data() + key_at + std::size_t(start) * dims;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, dims,
                shape_.scale, q_.data() + row_at, dims, k, dims, 0, scratch,
                kTile);
    for (int r = 0; r < rows; ++r) {
      const int seen =
          shape_.position + (first_row + r) / shape_.group + 1 - start;
      HWY_DYNAMIC_DISPATCH(RunningSoftmax)
      (scratch + r * kTile, std::clamp(seen, 0, keys), kTile, &largest[r],
       &sums[r], out + std::size_t(r) * dims, dims);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dims, keys, 1,
                scratch, kTile, v, dims, 1, out, dims);
  }
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < dims; ++i) out[std::size_t(r) * dims + i] /= sums[r];
  }
}

#else

std::string BlasCore() { return "none"; }
void BlasProduct(const float*, const float*, int, int, int, int, float*) {}
BlasFlash::BlasFlash(const FlashShape&, int, std::vector<float>,
                     std::vector<float>, std::vector<float>) {}
void BlasFlash::Run(kernels::ThreadPool&) {}

#endif  // HOLDFAST_HAVE_OPENBLAS

}  // namespace holdfast::bench
#endif  // HWY_ONCE
