// The engine's configuration.
#ifndef HOLDFAST_ENGINE_CONFIG_H_
#define HOLDFAST_ENGINE_CONFIG_H_

#include <chrono>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "engine/retention/policy.h"
#include "kernels/backend.h"
#include "shared/deadlines.h"

namespace holdfast::engine {

// As --exactness takes it: row_invariant, grid.
const char* ExactnessName(kernels::Exactness exactness);

struct Config {
  // A GGUF file or a Hugging Face folder.
  std::string model;
  // As clients name it; empty: as its files do.
  std::string model_name;
  // Of all daemons' sockets; made with mode 0700.
  std::string run_dir = "/run/holdfast";
  // "auto", "host" or "cuda" (engine/backend/choose_backend.h).
  std::string backend = "auto";
  // Print the device's facts as JSON and end.
  bool probe = false;
  // Of the host backend; 0: one per online CPU. Changes no result.
  int threads = 0;
  // Type of the cached rows: bf16 takes half the memory; f32 is for comparing
  // with reference implementations.
  std::string state_dtype = "bf16";
  // Of the host backend. row_invariant: any split of a prompt is exact. grid:
  // behaves as a grid backend and perturbs decode, to test what holds on one.
  std::string exactness = "row_invariant";
  // Tokens between grid lines, where prefill chunks start; 0: the model's own.
  int prefix_chunk = 0;
  // Tokens of the longest conversation; 0: the model's own limit.
  int max_context = 0;
  // Size of the block pool; at most one of the two. Neither: one conversation a
  // seat and what the budgets below say, cut to what the machine has.
  std::optional<std::uint64_t> pool_tokens;
  std::optional<double> pool_gb;  // 10^9 bytes
  // For anchors of resident conversations; a recurrent model takes a copy of
  // its state for each, another one its last hidden row. The copy behind the
  // last row of a conversation is not counted.
  double resident_gb = 2.5;  // GiB
  // MiB for the tokens of greedy answers, which an identical request gets
  // again; 0: none are kept.
  int response_cache_mb = 0;
  // A request of at most so many tokens, and under a quarter of the prompt of
  // the conversation that it would displace, is a guest: that stays.
  int resident_guest_max = 8192;
  double resident_stash_gb = 1;  // GiB, of rows and anchors that guests leave
  // Heads of displaced conversations and what they have past them, with their
  // anchors.
  double resident_pin_gb = 4;   // GiB
  double resident_park_gb = 4;  // GiB
  // A conversation of at least so many tokens is written to the session spill
  // before it loses rows.
  int spill_min_tokens = 16384;
  // Memory that the machine must keep; below it caches are given back, and what
  // still does not fit is refused.
  double keep_free_gb = 0.5;  // GiB
  // Of rows and anchors that no running request uses, in GiB; nothing: what the
  // pool holds.
  std::optional<double> cache_budget_gb;
  // Seats: requests that run at once. Their contexts share the pool.
  int parallel = 1;
  // On a CUDA device: host memory that rows are copied to for the cache
  // service. What does not fit there is not stored.
  double staging_gb = 2;  // GiB
  // Requests that may wait for a seat.
  int max_queue = 64;
  // Accepts forced tokens and digests from clients: never for production.
  bool debug = false;
  // Fixed costs of reading and computing, for tests of where a prompt starts;
  // empty: measured ones (engine/cache/planner_costs.h has the form).
  std::string planner_costs;
  // A request waits at most so long for the cache service to say what it has;
  // past it nothing is asked of it for a second.
  int lookup_deadline_ms = static_cast<int>(deadlines::kLookup.count());
  // Do not look for a cache service.
  bool no_cache_service = false;
  std::string log_level = "info";

  // The first bad value, named by its flag.
  absl::Status Validate() const;
  std::uint64_t resident_bytes() const { return GibiBytes(resident_gb); }
  RetentionBudgets retention() const {
    return {.guest_max_tokens = resident_guest_max,
            .stash_bytes = GibiBytes(resident_stash_gb),
            .pin_bytes = GibiBytes(resident_pin_gb),
            .park_bytes = GibiBytes(resident_park_gb),
            .spill_min_tokens = spill_min_tokens};
  }
  std::uint64_t keep_free_bytes() const {
    return static_cast<std::uint64_t>(keep_free_gb * (std::uint64_t{1} << 30));
  }
  std::uint64_t staging_bytes() const {
    return static_cast<std::uint64_t>(staging_gb * (std::uint64_t{1} << 30));
  }
  kernels::StateType state_type() const {
    return state_dtype == "f32" ? kernels::StateType::kF32
                                : kernels::StateType::kBF16;
  }
  kernels::Exactness exactness_level() const {
    return exactness == "grid" ? kernels::Exactness::kGrid
                               : kernels::Exactness::kRowInvariant;
  }
  std::chrono::milliseconds lookup_deadline() const {
    return std::chrono::milliseconds(lookup_deadline_ms);
  }
  std::string socket_path() const { return run_dir + "/engine.sock"; }

 private:
  static std::uint64_t GibiBytes(double gibi) {
    return static_cast<std::uint64_t>(gibi * (std::uint64_t{1} << 30));
  }
};

// `config` outlives `app`.
void AddFlags(CLI::App& app, Config& config);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CONFIG_H_
