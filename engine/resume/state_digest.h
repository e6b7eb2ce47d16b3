// A digest of everything that a sequence's state is made of, for checking
// exactness from outside. Debug engines only: it reads every row.
#ifndef HOLDFAST_ENGINE_RESUME_STATE_DIGEST_H_
#define HOLDFAST_ENGINE_RESUME_STATE_DIGEST_H_

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/resume/sequence.h"
#include "kernels/backend.h"
#include "shared/sha256.h"

namespace holdfast::engine {

enum class DigestSections {
  // Every section, as after the row before the position.
  kAll,
  // Without h_last, which does not outlive its row and so is unknown at a
  // position where a sequence was resumed.
  kRecurrent,
};

// SHA-256 of u64(rows), then each block below that position as the layout has
// it, rows past it as zeros, then the sections in layout order. Equal for equal
// states, however they came to be. An error when there is no memory for one
// block.
absl::StatusOr<Sha256Digest> StateDigest(const model::Model& model,
                                         kernels::Backend& backend,
                                         const Sequence& sequence,
                                         DigestSections sections);

// Of logits, as little-endian floats.
Sha256Digest LogitsDigest(std::span<const float> logits);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_STATE_DIGEST_H_
