// A model behind its adapter: what it adds to the cache, and the forward pass.
// C++ standard library, kernels/ and shared/cache_layout.h only.
#ifndef HOLDFAST_ENGINE_MODEL_MODEL_H_
#define HOLDFAST_ENGINE_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/status.h"
#include "shared/cache_layout.h"

namespace holdfast::model {

// Consecutive tokens of one sequence to be forwarded.
struct SequenceRows {
  std::span<const std::int32_t> ids;
  int position = 0;  // of the first id; rows below it are in the blocks
  // Block table, entry i for positions [256 i, 256 i + 256); must reach the
  // last id's position. Blocks that get rows must belong to this sequence.
  std::byte* const* blocks = nullptr;
  // The sequence's live sections, the backend's memory (CacheLayout::sections,
  // one after the other, each at a multiple of 64 bytes: SectionOffsets); read
  // at the start (models with recurrent state; at position 0 whatever they hold
  // counts as zeros), written for the last row. Never null.
  std::byte* sections = nullptr;
  // vocab_size floats each: for the last row, or for every row; empty: none.
  std::span<float> last_logits;
  std::span<float> all_logits;
  // The token chosen from the last row's logits, which need not leave the
  // backend's memory; null: none. Backends that choose tokens.
  const kernels::TokenChoice* choice = nullptr;
  kernels::ChosenToken* chosen = nullptr;
};

struct ModelInfo {
  std::string name;          // as clients name it
  std::string architecture;  // "llama", ...
  int vocab_size = 0;
  int max_context = 0;  // tokens, as the model's configuration says
  int layers = 0;
  int hidden = 0;
  std::string
      config_digest_input;       // the effective configuration, canonical text
  std::size_t weight_bytes = 0;  // packed
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const CacheLayout& layout() const = 0;
  virtual const kernels::KvShape& kv_shape() const = 0;
  // Of the layout, before anybody has seen it: another grid than the model's.
  virtual void SetGrid(std::uint32_t grid_tokens) = 0;

  // Forwards the rows of all sequences (their sum at most max_rows given at
  // load): writes their token rows, sections and the logits asked for. One
  // thread at a time. No allocation.
  virtual kernels::Status Forward(std::span<const SequenceRows> sequences) = 0;

  // The logits (vocab_size floats) of the row that left `sections`, from its
  // h_last alone: the bits that its Forward gave or would have given.
  virtual kernels::Status LogitsFromHidden(const std::byte* sections,
                                           std::span<float> logits) = 0;
};

// Byte offset of each section in a sequence's section buffer, and its size.
struct SectionOffsets {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
SectionOffsets ComputeSectionOffsets(const CacheLayout& layout);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_MODEL_H_
