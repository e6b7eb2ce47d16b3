#include "tests/gpu/timings.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
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
  kernels::MoeShape moe;
  int vocab;
};

struct Floors {
  double copy = 0;  // GB/s, read and written
  double gemm = 0;  // TFLOP/s, BF16
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

// The first of them is the floor of what multiplies.
void Products(Checker& checker, Timer& timer, const Sizes& sizes,
              Floors* floors) {
  auto& backend = checker.backend();
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
              floors->copy);
    const double many = timer.Seconds(
        [&] { backend.MatMul(**matrix, x, sizes.rows, nullptr, y); });
    const double rate =
        2.0 * sizes.rows * sizes.wide * sizes.wide / many / 1e12;
    timer.Add("product of " + std::to_string(sizes.rows) + " rows, " + name,
              rate, "TFLOP/s", floors->gemm);
    if (type == WeightType::kBF16) floors->gemm = rate;
    checker.Release();
  }
}

void Attention(Checker& checker, Timer& timer, const Sizes& sizes,
               const Floors& floors) {
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
              floors.copy);
    const int position = sizes.context - sizes.rows;
    const double flops =
        4.0 * width * sizes.rows * (position + sizes.rows / 2.0);
    timer.Add("prefill" + name, flops / run(position, sizes.rows) / 1e12,
              "TFLOP/s", floors.gemm);
    checker.Release();
  }
}

void Recurrence(Checker& checker, Timer& timer, const Sizes& sizes,
                const Floors& floors) {
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
    if (rows == 1) {  // the state, read and written
      timer.Add("gated delta net, state of 1 row",
                2.0 * shape.StateBytes() / seconds / 1e9, "GB/s", floors.copy);
    }
  }
  checker.Release();
}

void Experts(Checker& checker, Timer& timer, const Sizes& sizes,
             const Floors& floors) {
  auto& backend = checker.backend();
  const kernels::MoeShape& shape = sizes.moe;
  Random random(4);
  std::vector<std::unique_ptr<kernels::Matrix>> matrices;
  std::vector<kernels::ExpertWeights> experts;
  std::size_t bytes = 0;  // of one expert
  for (int e = 0; e < shape.experts; ++e) {
    bytes = 0;
    for (const auto& [rows, cols] : {std::pair{2 * shape.ffn, shape.hidden},
                                     std::pair{shape.hidden, shape.ffn}}) {
      const OwnedTensor w =
          RandomTensor(random, WeightType::kF8E4M3, rows, cols);
      auto matrix = backend.PackMatrix({&w.tensor, 1});
      if (!matrix.ok()) return checker.Expect(matrix.status());
      matrices.push_back(*std::move(matrix));
      bytes += w.bytes.size();
    }
    experts.push_back({matrices[2 * e].get(), matrices[2 * e + 1].get()});
  }
  float* const logits =
      checker.Upload(random.Floats(std::size_t(sizes.rows) * shape.experts));
  float* const x =
      checker.Upload(random.Floats(std::size_t(sizes.rows) * shape.hidden));
  float* const out = checker.Upload(
      std::vector<float>(std::size_t(sizes.rows) * shape.hidden));
  const auto run = [&](int rows) {
    return timer.Seconds([&] {
      backend.MoeExperts(shape, experts, logits, shape.experts, x, rows, out);
    });
  };
  timer.Add("experts of 1 row, F8_E4M3", shape.top_k * bytes / run(1) / 1e9,
            "GB/s", floors.copy);
  const double flops = 6.0 * shape.hidden * shape.ffn * shape.top_k;
  timer.Add("experts of " + std::to_string(sizes.rows) + " rows, F8_E4M3",
            sizes.rows * flops / run(sizes.rows) / 1e12, "TFLOP/s",
            floors.gemm);
  checker.Release();
}

void Choices(Checker& checker, Timer& timer, const Sizes& sizes,
             const Floors& floors) {
  Random random(5);
  const float* const logits = checker.Upload(random.Floats(sizes.vocab, 20.0f));
  kernels::ChosenToken chosen;
  for (const auto& [name, choice] :
       {std::pair{"largest", kernels::TokenChoice{}},
        std::pair{"sampled", kernels::TokenChoice{.temperature = 1.0f}}}) {
    const double seconds = timer.Seconds([&, choice] {
      checker.backend().ChooseToken(logits, sizes.vocab, choice, &chosen);
    });
    timer.Add("token of " + std::to_string(sizes.vocab) + ", " + name,
              sizes.vocab * sizeof(float) / seconds / 1e9, "GB/s", floors.copy);
  }
  checker.Release();
}

}  // namespace

void MeasureTimings(kernels::CudaBackend& backend, bool small, Report& report) {
  const Sizes sizes =
      small ? Sizes{256, 32, 256, {1, 2, 32, 32}, {4, 2, true, 128, 128}, 3000}
            : Sizes{8192,
                    1024,
                    32768,
                    {16, 48, 128, 128},
                    {32, 8, true, 2048, 768},
                    151936};
  Checker checker(backend);
  kernels::Limits limits;
  limits.max_rows = sizes.rows;
  limits.max_cols = sizes.wide;
  limits.max_heads = 32;
  limits.max_head_dim = 256;
  limits.max_positions = std::max(sizes.context, sizes.rows + 1);
  limits.gdn = sizes.gdn;
  limits.moe = sizes.moe;
  limits.max_vocab = sizes.vocab;
  checker.Expect(backend.Prepare(limits));
  Timer timer(checker, small, report);
  Floors floors;
  floors.copy = CopyRate(checker, timer, sizes);
  checker.Release();
  Products(checker, timer, sizes, &floors);
  Attention(checker, timer, sizes, floors);
  Recurrence(checker, timer, sizes, floors);
  Experts(checker, timer, sizes, floors);
  Choices(checker, timer, sizes, floors);
}

}  // namespace holdfast::gpu_check
