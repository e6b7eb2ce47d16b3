// Rows that were read from a tier before any request asked for them: they count
// as the tier's for the first request that resumes in them.
#ifndef HOLDFAST_ENGINE_RESUME_UNCLAIMED_ROWS_H_
#define HOLDFAST_ENGINE_RESUME_UNCLAIMED_ROWS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "shared/prefix_key.h"

namespace holdfast::engine {

// Only says what to call them: no row is found or used by it. Used by the
// engine thread alone.
class UnclaimedRows {
 public:
  void Add(const PrefixKey& root, std::vector<KeyId> ids);
  // Of a prompt that resumes at `position`: how many of its rows nobody has
  // resumed in so far, when the last of them is one. Changes nothing.
  int Below(const PrefixKey& root, std::span<const KeyId> prompt,
            int position) const;
  // The prompt was resumed in what there was of its rows, or has computed them
  // anew: they are nobody's no more.
  void Claim(const PrefixKey& root, std::span<const KeyId> prompt);
  void Clear() { all_.clear(); }
  bool empty() const { return all_.empty(); }

 private:
  struct Conversation {
    PrefixKey root;
    std::vector<KeyId> ids;
    std::size_t claimed = 0;  // rows below
  };

  std::vector<Conversation> all_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_UNCLAIMED_ROWS_H_
