// The digest of everything that cached bytes depend on.
#ifndef HOLDFAST_ENGINE_FINGERPRINT_H_
#define HOLDFAST_ENGINE_FINGERPRINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/backend.h"
#include "shared/sha256.h"

namespace holdfast::engine {

// SHA-256 over the content of `files` (weights, configuration, tokenizer; not
// their names), the effective configuration, the backend with its arithmetic
// revision, the cache layout and the self-test. Reads every file once.
absl::StatusOr<Sha256Digest> ComputeFingerprint(
    const std::vector<std::string>& files, const model::Model& model,
    const kernels::BackendInfo& backend, const Sha256Digest& self_test);

// Runs the model over fixed tokens, prefill and decode, and digests rows and
// logits: a build whose arithmetic differs gets another fingerprint, whatever
// its revision says. Needs memory for one block; leaves nothing.
absl::StatusOr<Sha256Digest> SelfTest(model::Model& model,
                                      kernels::Backend& backend);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_FINGERPRINT_H_
