// What is left of conversations that no seat holds any more: anchors whose rows
// are all in the block index.
#ifndef HOLDFAST_ENGINE_RESUME_REMNANTS_H_
#define HOLDFAST_ENGINE_RESUME_REMNANTS_H_

#include <list>
#include <string>
#include <vector>

#include "engine/anchors/anchor.h"
#include "engine/pool/block_pool.h"
#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// Whole blocks of one conversation, by name: the index has every one of them.
struct Remnant {
  PrefixKey root;
  std::vector<KeyId> ids;       // of those blocks
  std::vector<PrefixKey> keys;  // one a block
  AnchorList anchors;           // at least one, none above ids
};

// However cheap their anchors are: each costs its key ids and a comparison with
// every prompt.
inline constexpr int kMaxRemnants = 64;

// Owned and used by the engine thread alone.
class Remnants {
 public:
  // Keeps those anchors of `sequence` that `elsewhere` does not have, that any
  // prompt may use and whose rows the index has; returns how many had none
  // there. Uses the sequence up: all it is good for is to be destroyed. Past
  // kMaxRemnants the one used longest ago goes.
  int Retire(const BlockPool& pool, const GridRule& rule, Sequence& sequence,
             const AnchorList& elsewhere);
  // The anchors that another conversation holds now are dropped here.
  void Forget(const AnchorList& anchors);
  // The block named `key`, with `depth` blocks above it, leaves the index.
  // Drops the anchors above its first row; returns how many.
  int OnEviction(const PrefixKey& key, int depth);
  // Drops one anchor that nobody else holds, of the conversation used longest
  // ago: the one whose removal leaves the smallest gap. False when there is
  // none.
  bool DropOne();
  // Counts as a use. `remnant` is one of all().
  void Touch(const Remnant* remnant);

  // Used longest ago first.
  const std::list<Remnant>& all() const { return all_; }
  // For tests.
  std::string Describe() const;

 private:
  std::list<Remnant> all_;
};

// Drops the anchor that nobody else holds whose removal leaves the smallest gap
// below `end`. False when there is none.
bool DropUnshared(AnchorList& anchors, int end);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_REMNANTS_H_
