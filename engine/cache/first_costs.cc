#include "engine/cache/first_costs.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/model_status.h"
#include "shared/cache_layout.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr double kSeconds = 1;
constexpr int kFirstRows = 16;

}  // namespace

absl::StatusOr<double> MeasurePrefillRate(model::Model& model,
                                          kernels::Backend& backend,
                                          int max_rows) {
  const CacheLayout& layout = model.layout();
  const auto block = backend.Allocate(layout.BlockBytes());
  if (!block.ok()) return ToAbslStatus(block.status());
  const auto sections = backend.Allocate(
      std::max<std::size_t>(1, model::ComputeSectionOffsets(layout).bytes));
  if (!sections.ok()) return ToAbslStatus(sections.status());
  std::byte* const table[] = {static_cast<std::byte*>((*block)->data())};
  const int most = std::min({max_rows, kBlockTokens, model.info().max_context});
  std::vector<std::int32_t> ids(most);
  for (int i = 0; i < most; ++i) ids[i] = i % model.info().vocab_size;
  double rate = 0;
  double used = 0;
  for (int rows = std::min(kFirstRows, most);;
       rows = std::min(2 * rows, most)) {
    const model::SequenceRows sequence{
        .ids = std::span(ids).first(rows),
        .position = 0,
        .blocks = table,
        .sections = static_cast<std::byte*>((*sections)->data()),
        .last_logits = {},
        .all_logits = {}};
    const auto start = steady_clock::now();
    auto status = model.Forward({&sequence, 1});
    if (status.ok()) status = backend.Synchronize();
    if (!status.ok()) return ToAbslStatus(status);
    const double seconds =
        std::max(duration<double>(steady_clock::now() - start).count(), 1e-9);
    rate = rows / seconds;
    used += seconds;
    // The next one takes twice as long at most.
    if (rows == most || used + 2 * seconds > kSeconds) return rate;
  }
}

std::unique_ptr<PlannerCosts> FirstCosts(
    const PlannerRates& remembered,
    const std::function<absl::StatusOr<double>()>& measure) {
  if (remembered.prefill_tokens > 0) {
    auto costs = MakeMeasuredCosts();
    costs->Remember(remembered);
    spdlog::info("prefill remembered tokens_per_s={:.0f}",
                 remembered.prefill_tokens);
    return costs;
  }
  PlannerRates first;
  if (const auto rate = measure(); rate.ok()) {
    first.prefill_tokens = *rate;
    spdlog::info("prefill measured tokens_per_s={:.0f}", *rate);
  } else {
    spdlog::warn(
        "a prefill could not be measured: {}; until requests were, plans "
        "reckon with tokens_per_s={:.0f}",
        std::string(rate.status().message()),
        MakeMeasuredCosts()->Used().prefill_tokens);
  }
  auto costs = MakeMeasuredCosts(first);
  costs->Remember(remembered);
  return costs;
}

}  // namespace holdfast::engine
