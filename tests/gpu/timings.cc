#include "tests/gpu/timings.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "shared/cache_layout.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::WeightType;
using std::chrono::steady_clock;

class Timer {
 public:
  Timer(Checker& checker, bool small, Report& report)
      : checker_(checker), repeats_(small ? 1 : 10), report_(report) {}

  // Seconds of one call: the least of three runs.
  double Seconds(const std::function<void()>& call) {
    auto& backend = checker_.backend();
    call();
    (void)backend.Synchronize();
    double least = 1e30;
    for (int run = 0; run < 3; ++run) {
      const auto start = steady_clock::now();
      for (int i = 0; i < repeats_; ++i) call();
      if (const auto status = backend.Synchronize(); !status.ok()) {
        problem_ = status.message();
      }
      const std::chrono::duration<double> took = steady_clock::now() - start;
      least = std::min(least, took.count() / repeats_);
    }
    return least;
  }

  // A figure in `unit`, and its part of `floor` (0: it is the floor).
  void Add(const std::string& name, double figure, const char* unit,
           double floor) {
    char text[96];
    if (floor > 0) {
      std::snprintf(text, sizeof(text), "%.1f %s, %.0f %% of the floor", figure,
                    unit, 100 * figure / floor);
    } else {
      std::snprintf(text, sizeof(text), "%.1f %s", figure, unit);
    }
    report_.Add("timing", name,
                problem_.empty() ? Outcome::kMeasured : Outcome::kFailed,
                problem_.empty() ? text : problem_);
    problem_.clear();
  }

 private:
  Checker& checker_;
  int repeats_;
  Report& report_;
  std::string problem_;
};

struct Sizes {
  int wide;     // of a square weight matrix
  int rows;     // of a prefill chunk
  int context;  // positions that decode reads
  kernels::GdnShape gdn;
};

double CopyRate(Checker& checker, Timer& timer, const Sizes& sizes) {
  const std::size_t bytes = std::size_t(sizes.wide) * sizes.wide * 8;
  std::byte* const a = checker.Allocate(bytes);
  std::byte* const b = checker.Allocate(bytes);
  const double seconds =
      timer.Seconds([&] { checker.backend().Copy(a, bytes, b); });
  const double rate = 2.0 * bytes / seconds / 1e9;
  timer.Add("copy, read and write", rate, "GB/s", 0);
  return rate;
}

void Products(Checker& checker, Timer& timer, const Sizes& sizes,
              double copy_rate) {
  auto& backend = checker.backend();
  double gemm_rate = 0;
  for (const WeightType type :
       {WeightType::kBF16, WeightType::kF8E4M3, WeightType::kQ8_0,
        WeightType::kQ4_K, WeightType::kQ4_1}) {
    Random random(1);
    const OwnedTensor w = RandomTensor(random, type, sizes.wide, sizes.wide);
    const auto matrix = backend.PackMatrix({&w.tensor, 1});
    if (!matrix.ok()) continue;
    const std::string name = kernels::WeightTypeName(type);
    float* const x =
        checker.Upload(random.Floats(std::size_t(sizes.rows) * sizes.wide));
    float* const y = checker.Upload(
        std::vector<float>(std::size_t(sizes.rows) * sizes.wide));
    const double one =
        timer.Seconds([&] { backend.MatMul(**matrix, x, 1, nullptr, y); });
    timer.Add("product of 1 row, " + name, w.bytes.size() / one / 1e9, "GB/s",
              copy_rate);
    const double many = timer.Seconds(
        [&] { backend.MatMul(**matrix, x, sizes.rows, nullptr, y); });
    const double rate =
        2.0 * sizes.rows * sizes.wide * sizes.wide / many / 1e12;
    timer.Add("product of " + std::to_string(sizes.rows) + " rows, " + name,
              rate, "TFLOP/s", gemm_rate);
    if (type == WeightType::kBF16) gemm_rate = rate;
    checker.Release();
  }
}

void Attention(Checker& checker, Timer& timer, const Sizes& sizes,
               double copy_rate) {
  auto& backend = checker.backend();
  for (const auto& [heads, kv_heads, dim] :
       {std::tuple{24, 8, 64}, std::tuple{32, 8, 128},
        std::tuple{24, 4, 256}}) {
    const kernels::KvShape shape = {1, kv_heads, dim,
                                    kernels::StateType::kBF16};
    const std::size_t block_bytes = 2 * shape.TokenBytes() * kBlockTokens;
    std::vector<std::byte*> blocks;
    for (int at = 0; at < sizes.context; at += kBlockTokens) {
      blocks.push_back(checker.Allocate(block_bytes));  // zeros
    }
    const int width = heads * dim;
    Random random(2);
    float* const q =
        checker.Upload(random.Floats(std::size_t(sizes.rows) * width));
    float* const out =
        checker.Upload(std::vector<float>(std::size_t(sizes.rows) * width));
    const auto run = [&](int position, int rows) {
      const kernels::RowSpan span = {blocks.data(), 0, position, rows};
      return timer.Seconds([&, span] {
        backend.Attention(shape, 0, q, width, heads, 0.1f, {&span, 1}, out);
      });
    };
    const std::string name = " attention, dims " + std::to_string(dim);
    const double read = 2.0 * shape.TokenBytes() * sizes.context;
    timer.Add("decode" + name, read / run(sizes.context - 1, 1) / 1e9, "GB/s",
              copy_rate);
    const int position = sizes.context - sizes.rows;
    const double flops =
        4.0 * width * sizes.rows * (position + sizes.rows / 2.0);
    timer.Add("prefill" + name, flops / run(position, sizes.rows) / 1e12,
              "TFLOP/s", 0);
    checker.Release();
  }
}

void Recurrence(Checker& checker, Timer& timer, const Sizes& sizes) {
  auto& backend = checker.backend();
  const kernels::GdnShape& shape = sizes.gdn;
  Random random(3);
  const kernels::GdnWeights weights = {
      checker.Upload(random.Floats(std::size_t{4} * shape.Channels())),
      checker.Upload(std::vector<float>(shape.value_heads, -1.0f)),
      checker.Upload(random.Floats(shape.value_heads)),
      checker.Upload(random.Floats(shape.value_dim)), 1e-6f};
  const kernels::GdnPlace place = {0, (shape.TailBytes() + 63) / 64 * 64};
  const int width = shape.ProjectedWidth();
  float* const x =
      checker.Upload(random.Floats(std::size_t(sizes.rows) * width, 0.1f));
  float* const out = checker.Upload(
      std::vector<float>(std::size_t(sizes.rows) * shape.ValueWidth()));
  std::byte* const block = checker.Allocate(16);
  const std::vector<std::byte*> blocks(sizes.rows / kBlockTokens + 2, block);
  std::byte* const sections =
      checker.Allocate(place.state + shape.StateBytes());
  for (const int rows : {1, sizes.rows}) {
    const kernels::RowSpan span = {blocks.data(), 0, 1, rows, sections};
    const double seconds = timer.Seconds([&] {
      backend.GatedDeltaNet(shape, weights, place, x, width, {&span, 1}, out);
    });
    timer.Add("gated delta net, " + std::to_string(rows) + " rows",
              1e6 * seconds / rows, "us a row", 0);
  }
  checker.Release();
}

}  // namespace

void MeasureTimings(kernels::CudaBackend& backend, bool small, Report& report) {
  const Sizes sizes = small ? Sizes{256, 32, 256, {1, 2, 32, 32}}
                            : Sizes{8192, 1024, 32768, {16, 48, 128, 128}};
  Checker checker(backend);
  kernels::Limits limits;
  limits.max_rows = sizes.rows;
  limits.max_cols = sizes.wide;
  limits.max_heads = 32;
  limits.max_head_dim = 256;
  limits.max_positions = std::max(sizes.context, sizes.rows + 1);
  limits.gdn = sizes.gdn;
  checker.Expect(backend.Prepare(limits));
  Timer timer(checker, small, report);
  const double copy_rate = CopyRate(checker, timer, sizes);
  checker.Release();
  Products(checker, timer, sizes, copy_rate);
  Attention(checker, timer, sizes, copy_rate);
  Recurrence(checker, timer, sizes);
}

}  // namespace holdfast::gpu_check
