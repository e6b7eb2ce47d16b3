#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::reference::FromFloats;
using kernels::reference::Numbers;

constexpr int kRows = 19;
constexpr int kCols = 101;  // no multiple of anything
constexpr int kHeads = 3;
constexpr int kHeadDim = 64;
constexpr float kEps = 0.01f;  // large enough to be seen in the results

void Elementwise(Checker& checker, Random& random) {
  auto& backend = checker.backend();
  const auto x = random.Floats(kRows * kCols);
  const auto y = random.Floats(kRows * kCols);
  const auto gates = random.Floats(2 * kRows * kCols, 6.0f);
  const std::size_t count = x.size();

  float* const device_x = checker.Upload(x);
  float* const device_y = checker.Upload(y);
  backend.Add(device_x, device_y, kRows, kCols);
  Numbers want;
  for (std::size_t i = 0; i < count; ++i) want.push_back(double{x[i]} + y[i]);
  checker.Compare("add", checker.Download(device_x, count), want, kFloatLimit);

  float* const device_gates = checker.Upload(gates);
  backend.SiluMul(device_gates, kRows, kCols, device_x);
  want.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i / kCols * 2 * kCols + i % kCols;
    want.push_back(kernels::reference::SiluMul(gates[at], gates[at + kCols]));
  }
  checker.Compare("silu_mul", checker.Download(device_x, count), want,
                  kFloatLimit);

  float* const device_z = checker.Upload(y);
  backend.SigmoidMul(device_z, device_gates + kCols, 2 * kCols, kRows, kCols);
  want.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i / kCols * 2 * kCols + kCols + i % kCols;
    want.push_back(y[i] * kernels::reference::Sigmoid(gates[at]));
  }
  checker.Compare("sigmoid_mul", checker.Download(device_z, count), want,
                  kFloatLimit);

  float* const device_sum = checker.Upload(x);
  backend.AddGated(device_sum, device_y, device_gates + 5, 2 * kCols, kRows,
                   kCols);
  want.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const float gate = gates[i / kCols * 2 * kCols + 5];
    want.push_back(x[i] + kernels::reference::Sigmoid(gate) * y[i]);
  }
  checker.Compare("add_gated", checker.Download(device_sum, count), want,
                  kFloatLimit);
}

void Norms(Checker& checker, Random& random) {
  auto& backend = checker.backend();
  const auto x = random.Floats(kRows * kCols);
  const auto weight = random.Floats(kCols);
  float* const out = checker.Upload(x);
  backend.RmsNorm(checker.Upload(x), checker.Upload(weight), kEps, kRows, kCols,
                  out);
  checker.Compare("rms_norm", checker.Download(out, x.size()),
                  kernels::reference::RmsNorm(FromFloats(x), FromFloats(weight),
                                              kEps, kCols),
                  kFloatLimit);

  // Heads inside a wider row: what lies beside them stays.
  constexpr int kStride = kHeads * kHeadDim + 8;
  const auto rows = random.Floats(kRows * kStride);
  const auto head_weight = random.Floats(kHeadDim);
  float* const device_rows = checker.Upload(rows);
  backend.HeadNorm(device_rows, checker.Upload(head_weight), kEps, kRows,
                   kStride, kHeads, kHeadDim);
  Numbers want = FromFloats(rows);
  for (int r = 0; r < kRows; ++r) {
    const auto first = want.begin() + r * kStride;
    const Numbers normed =
        kernels::reference::RmsNorm(Numbers(first, first + kHeads * kHeadDim),
                                    FromFloats(head_weight), kEps, kHeadDim);
    std::copy(normed.begin(), normed.end(), first);
  }
  checker.Compare("head_norm", checker.Download(device_rows, rows.size()), want,
                  kFloatLimit);
}

void Rotation(Checker& checker, Random& random) {
  auto& backend = checker.backend();
  std::vector<float> frequencies;
  for (int i = 0; i < kHeadDim / 4; ++i) {  // half of the head rotates
    frequencies.push_back(1.0f / static_cast<float>(1 + i * i));
  }
  const auto table = backend.MakeRopeTable(frequencies, 600);
  if (!table.ok()) return checker.Expect(table.status());
  constexpr int kStride = kHeads * kHeadDim;
  const auto rows = random.Floats(kRows * kStride);
  float* const device_rows = checker.Upload(rows);
  std::byte* const block = checker.Allocate(4096);
  std::byte* const blocks[] = {block, block, block};
  const kernels::RowSpan spans[] = {{blocks, 0, 250, 12}, {blocks, 12, 0, 7}};
  backend.Rope(device_rows, kStride, kHeads, kHeadDim, **table, spans);
  Numbers want = FromFloats(rows);
  for (int r = 0; r < kRows; ++r) {
    kernels::reference::Rope(&want[r * kStride], kHeads, kHeadDim, frequencies,
                             r < 12 ? 250 + r : r - 12);
  }
  checker.Compare("rope", checker.Download(device_rows, rows.size()), want,
                  kFloatLimit);
}

}  // namespace

void CheckRows(Checker& checker) {
  kernels::Limits limits;
  limits.max_rows = 32;
  limits.max_cols = 256;
  limits.max_heads = kHeads;
  limits.max_head_dim = kHeadDim;
  limits.max_positions = 600;
  checker.Expect(checker.backend().Prepare(limits));
  Random random(1);
  Elementwise(checker, random);
  Norms(checker, random);
  Rotation(checker, random);
}

}  // namespace holdfast::gpu_check
