#include "tests/bench/model_bench.h"

#include <algorithm>
#include <utility>

#include "tests/bench/model_runner.h"

namespace holdfast::bench {
namespace {

constexpr int kWarmUpTokens = 64;

}  // namespace

absl::StatusOr<ModelBench> RunModelBench(const ModelBenchOptions& options) {
  std::vector<int> depths = options.depths;
  std::sort(depths.begin(), depths.end());
  const int deepest = depths.empty() ? 0 : depths.back();
  auto runner =
      ModelRunner::Make(options.file, options.threads,
                        deepest + std::max(options.prompt, options.generate));
  if (!runner.ok()) return runner.status();
  const auto warm =
      (*runner)->Forward(0, std::min(kWarmUpTokens, options.prompt), kStepRows);
  if (!warm.ok()) return warm.status();

  ModelBench result;
  result.model = (*runner)->model().info().name;
  result.backend =
      (*runner)->backend().name + " " + (*runner)->backend().target;
  int filled = 0;
  for (const int depth : depths) {
    const auto fill = (*runner)->Forward(filled, depth - filled, kStepRows);
    if (!fill.ok()) return fill.status();
    filled = depth;
    (*runner)->SaveSections();
    auto prefill =
        (*runner)->Measure("prefill", depth, options.prompt, kStepRows);
    if (!prefill.ok()) return prefill.status();
    (*runner)->RestoreSections();
    auto decode = (*runner)->Measure("decode", depth, options.generate, 1);
    if (!decode.ok()) return decode.status();
    (*runner)->RestoreSections();
    result.speeds.push_back(*std::move(prefill));
    result.speeds.push_back(*std::move(decode));
  }
  return result;
}

}  // namespace holdfast::bench
