// Which requests are run at all.
#ifndef HOLDFAST_ENGINE_SCHEDULER_ADMISSION_H_
#define HOLDFAST_ENGINE_SCHEDULER_ADMISSION_H_

#include <optional>

#include "engine/scheduler/request.h"

namespace holdfast::engine {

inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 1024;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxThinkingWords = 256;

struct AdmissionLimits {
  int vocab_size = 0;
  int max_context = 0;
  bool debug = false;
  Sha256Digest fingerprint{};
};

// Why the request cannot run, or nothing. Pure.
std::optional<Refusal> CheckRequest(const Request& request,
                                    const AdmissionLimits& limits);

// Bytes of scratch that a bypass or read_only request may need outside the
// pool: a whole answer's blocks less the free ones.
std::uint64_t ScratchBytes(const Request& request, int max_context,
                           int free_blocks, std::uint64_t block_bytes);

// Refuses such a request when that is more than half of the memory that the
// machine can give.
std::optional<Refusal> CheckScratch(const Request& request, int max_context,
                                    int free_blocks, std::uint64_t block_bytes,
                                    std::uint64_t available_bytes);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_ADMISSION_H_
