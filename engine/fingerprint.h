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

struct SelfTests {
  Sha256Digest kernels{};
  Sha256Digest model{};
};

// SHA-256 over the content of `files` (weights, configuration, tokenizer; not
// their names), the effective configuration, the backend with its arithmetic
// revision, the cache layout and the self-tests. Reads every file once.
absl::StatusOr<Sha256Digest> ComputeFingerprint(
    const std::vector<std::string>& files, const model::Model& model,
    const kernels::BackendInfo& backend, const SelfTests& self_tests);

// Digests what every kernel makes of fixed numbers (kernels/self_test.h). To be
// run before a model is loaded with the backend: it prepares the backend for
// itself.
absl::StatusOr<Sha256Digest> SelfTestKernels(kernels::Backend& backend);

// Runs the model over fixed tokens, prefill and decode, and digests rows and
// logits: a build whose arithmetic differs gets another fingerprint, whatever
// its revision says. Needs memory for one block; leaves nothing.
absl::StatusOr<Sha256Digest> SelfTestModel(model::Model& model,
                                           kernels::Backend& backend);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_FINGERPRINT_H_
