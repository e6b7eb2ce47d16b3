#include "engine/config.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/cache/planner_costs.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"
#include "shared/flag_checks.h"

namespace holdfast::engine {
namespace {

constexpr int kMaxThreads = 1024;
constexpr std::size_t kMaxName = 256;
constexpr int kMaxQueue = 100000;
constexpr int kMaxLookupMs = 60000;
// Rows that decode at once go into one step.
constexpr int kMaxParallel = 256;
constexpr int kMaxChunk = 16384;
constexpr int kMaxResponseMb = 1 << 20;
constexpr std::uint64_t kMaxPoolTokens = std::uint64_t{1} << 38;
constexpr double kMaxPoolGb = 1e6;

absl::Status Bad(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

// It stands in JSON, in log lines and in metrics.
absl::Status CheckName(const std::string& name) {
  const bool prints = std::ranges::all_of(
      name, [](unsigned char c) { return c > ' ' && c != 0x7f; });
  if (prints && name.size() <= kMaxName) return absl::OkStatus();
  return Bad(
      fmt::format("--model-name: must be at most {} bytes, without "
                  "spaces and control characters",
                  kMaxName));
}

absl::Status CheckValues(const Config& config) {
  return FirstBad(
      {CheckChoice("--backend", config.backend, {"auto", "host", "cuda"}),
       CheckRange("--threads", config.threads, 0, kMaxThreads),
       CheckChoice("--state-dtype", config.state_dtype, {"bf16", "f32"}),
       CheckChoice("--exactness", config.exactness, {"row_invariant", "grid"}),
       CheckRange("--resident-gb", config.resident_gb, 0, kMaxPoolGb),
       CheckRange("--resident-stash-gb", config.resident_stash_gb, 0,
                  kMaxPoolGb),
       CheckRange("--resident-pin-gb", config.resident_pin_gb, 0, kMaxPoolGb),
       CheckRange("--resident-park-gb", config.resident_park_gb, 0, kMaxPoolGb),
       CheckRange("--staging-gb", config.staging_gb, 0, kMaxPoolGb),
       CheckRange("--keep-free-gb", config.keep_free_gb, 0, kMaxPoolGb),
       CheckRange("--cache-budget-gb", config.cache_budget_gb.value_or(0), 0,
                  kMaxPoolGb),
       CheckRange("--parallel", config.parallel, 1, kMaxParallel),
       CheckRange("--response-cache-mb", config.response_cache_mb, 0,
                  kMaxResponseMb),
       CheckRange("--lookup-deadline-ms", config.lookup_deadline_ms, 1,
                  kMaxLookupMs),
       CheckRange("--max-queue", config.max_queue, 0, kMaxQueue)});
}

}  // namespace

const char* ExactnessName(kernels::Exactness exactness) {
  return exactness == kernels::Exactness::kGrid ? "grid" : "row_invariant";
}

absl::Status Config::Validate() const {
  if (model.empty()) return Bad("--model: a GGUF file or folder is needed");
  if (auto s = CheckName(model_name); !s.ok()) return s;
  if (run_dir.empty()) return Bad("--run-dir: must not be empty");
  if (auto s = CheckValues(*this); !s.ok()) return s;
  if (prefix_chunk < 0 || prefix_chunk % kBlockTokens != 0 ||
      prefix_chunk > kMaxChunk) {
    return Bad(
        fmt::format("--prefix-chunk {}: must be a multiple of {} and at "
                    "most {}",
                    prefix_chunk, kBlockTokens, kMaxChunk));
  }
  if (max_context < 0 || max_context == 1) {
    return Bad(
        fmt::format("--max-context {}: must be 0 or at least 2", max_context));
  }
  if (pool_tokens && pool_gb) {
    return Bad("--pool-tokens and --pool-gb: give one of them");
  }
  if (pool_tokens && (*pool_tokens == 0 || *pool_tokens > kMaxPoolTokens)) {
    return Bad(fmt::format("--pool-tokens {}: must be 1 to {}", *pool_tokens,
                           kMaxPoolTokens));
  }
  if (pool_gb && !(*pool_gb > 0 && *pool_gb <= kMaxPoolGb)) {
    return Bad(fmt::format("--pool-gb {}: must be above 0 and at most {}",
                           *pool_gb, kMaxPoolGb));
  }
  if (resident_guest_max < 0) {
    return Bad(fmt::format("--resident-guest-max {}: must not be negative",
                           resident_guest_max));
  }
  if (spill_min_tokens < 0) {
    return Bad(fmt::format("--spill-min-tokens {}: must not be negative",
                           spill_min_tokens));
  }
  if (!planner_costs.empty()) {
    if (const auto costs = ParsePlannerCosts(planner_costs); !costs.ok()) {
      return Bad(fmt::format("--planner-costs: {}",
                             std::string(costs.status().message())));
    }
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Config& config) {
  app.add_option("--model", config.model, "GGUF file or Hugging Face folder");
  app.add_option("--model-name", config.model_name,
                 "as clients name the model. Default: as its files do");
  app.add_option("--run-dir", config.run_dir, "folder of the daemons' sockets")
      ->capture_default_str();
  app.add_option("--backend", config.backend,
                 "what computes: auto, host or cuda")
      ->capture_default_str();
  app.add_flag("--probe", config.probe,
               "print what the CUDA device is and allows as JSON, and end")
      ->configurable(false);
  app.add_option("--threads", config.threads, "threads; 0: one per online CPU")
      ->capture_default_str();
  app.add_option("--state-dtype", config.state_dtype,
                 "type of cached rows: bf16 or f32")
      ->capture_default_str();
  app.add_option("--exactness", config.exactness,
                 "of the CPU. row_invariant: any split of a prompt gives the "
                 "same bits; "
                 "grid: for tests, only whole chunks from grid lines do, and "
                 "decode perturbs the last bits")
      ->capture_default_str();
  app.add_option("--prefix-chunk", config.prefix_chunk,
                 "tokens between grid lines, where prefill chunks start; 0: "
                 "the model's. Another value is another fingerprint")
      ->capture_default_str();
  app.add_option("--max-context", config.max_context,
                 "tokens of the longest conversation; 0: the model's limit")
      ->capture_default_str();
  app.add_option("--pool-tokens", config.pool_tokens,
                 "size of the block pool in tokens. Default: one conversation "
                 "of the whole context a seat, and the stash, pin and park "
                 "budgets, cut to what the machine has");
  app.add_option("--pool-gb", config.pool_gb,
                 "size of the block pool in 10^9 bytes");
  app.add_option("--resident-gb", config.resident_gb,
                 "memory for anchors, in GiB: copies of the recurrent state "
                 "where a conversation can be resumed")
      ->capture_default_str();
  app.add_option("--resident-guest-max", config.resident_guest_max,
                 "a request of at most so many tokens, and under a quarter of "
                 "the conversation that it would displace, runs beside it")
      ->capture_default_str();
  app.add_option("--resident-stash-gb", config.resident_stash_gb,
                 "what such guests leave in the pool, in GiB")
      ->capture_default_str();
  app.add_option("--resident-pin-gb", config.resident_pin_gb,
                 "heads of displaced conversations, in GiB")
      ->capture_default_str();
  app.add_option("--resident-park-gb", config.resident_park_gb,
                 "what displaced conversations have past their heads, in GiB")
      ->capture_default_str();
  app.add_option("--spill-min-tokens", config.spill_min_tokens,
                 "a conversation of at least so many tokens is written to the "
                 "session spill before it loses rows")
      ->capture_default_str();
  app.add_option(
         "--keep-free-gb", config.keep_free_gb,
         "memory that the machine keeps, in GiB: before a prefill would "
         "take it, caches are given back, then requests are refused")
      ->capture_default_str();
  app.add_option("--cache-budget-gb", config.cache_budget_gb,
                 "memory of rows and anchors that no running request uses, in "
                 "GiB. Default: what the pool holds");
  app.add_option("--parallel", config.parallel,
                 "requests that run at once, each on a seat. Their contexts "
                 "share the pool: when blocks run out, the youngest waits")
      ->capture_default_str();
  app.add_option("--staging-gb", config.staging_gb,
                 "on a CUDA device: host memory that rows are copied to for "
                 "the cache service, in GiB; what does not fit is not stored")
      ->capture_default_str();
  app.add_option("--response-cache-mb", config.response_cache_mb,
                 "memory for greedy answers, in MiB: an identical request is "
                 "answered from it; 0: off")
      ->capture_default_str();
  app.add_option("--max-queue", config.max_queue,
                 "requests that may wait for a seat")
      ->capture_default_str();
  app.add_flag("--debug", config.debug,
               "accept forced tokens and digests: for tests, never for "
               "production");
  app.add_option(
      "--planner-costs", config.planner_costs,
      "fixed costs for choosing where a prompt starts: "
      "prefill=TOKENS_PER_S,store=MB_PER_S,disk=MB_PER_S,"
      "spill=MB_PER_S. Default: measured, and remembered by the cache "
      "service");
  app.add_option("--lookup-deadline-ms", config.lookup_deadline_ms,
                 "how long a request waits for the cache service to say what "
                 "it has, in ms; past it the request starts without")
      ->capture_default_str();
  app.add_flag("--no-cache-service", config.no_cache_service,
               "do not attach to a cache service");
  app.add_option("--log-level", config.log_level,
                 "trace, debug, info, warn or error")
      ->capture_default_str();
}

}  // namespace holdfast::engine
