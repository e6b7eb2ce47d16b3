#include "engine/resume/remnants.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "engine/anchors/thinning.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// Removes the anchors above `rows`; how many there were.
int CutAnchors(AnchorList& anchors, int rows) {
  return static_cast<int>(std::erase_if(
      anchors, [rows](const AnchorRef& a) { return a->position > rows; }));
}

// How many of the named blocks the index has, from the first on.
int BlocksInIndex(const BlockPool& pool, std::span<const PrefixKey> keys,
                  std::span<const KeyId> ids) {
  std::size_t i = 0;
  while (i < keys.size() &&
         pool.Find(keys[i], ids.subspan(i * kBlockTokens, kBlockTokens)) !=
             kNoBlock) {
    ++i;
  }
  return static_cast<int>(i);
}

}  // namespace

bool DropUnshared(AnchorList& anchors, int end) {
  std::vector<int> positions;
  std::vector<bool> shared;
  for (const AnchorRef& anchor : anchors) {
    positions.push_back(anchor->position);
    shared.push_back(anchor.use_count() > 1);
  }
  if (std::ranges::find(shared, false) == shared.end()) return false;
  anchors.erase(anchors.begin() + SpotToDrop(positions, shared, end));
  return true;
}

int Remnants::Retire(const BlockPool& pool, const GridRule& rule,
                     Sequence& sequence, const AnchorList& elsewhere) {
  Remnant remnant{.root = sequence.root,
                  .ids = std::move(sequence.ids),
                  .keys = {},
                  .anchors = AnchorsWithout(sequence.anchors, elsewhere)};
  sequence.anchors.clear();
  ExtendPrefixKeys(remnant.root, remnant.ids, remnant.keys);
  const int blocks = BlocksInIndex(pool, remnant.keys, remnant.ids);
  int gone = CutAnchors(remnant.anchors, blocks * kBlockTokens);
  // The index may have these very ids from a cold run of a longer prompt: the
  // rows of a part of a chunk are gone all the same.
  gone += static_cast<int>(
      std::erase_if(remnant.anchors, [&rule](const AnchorRef& anchor) {
        return anchor->provenance == Provenance::kSession ||
               !rule.SharedAt(anchor->position);
      }));
  if (remnant.anchors.empty()) return gone;
  remnant.keys.resize(blocks);
  remnant.ids.resize(blocks * kBlockTokens);
  remnant.ids.shrink_to_fit();
  all_.push_back(std::move(remnant));
  if (all_.size() > kMaxRemnants) all_.pop_front();
  return gone;
}

void Remnants::Forget(const AnchorList& anchors) {
  for (Remnant& remnant : all_) {
    remnant.anchors = AnchorsWithout(remnant.anchors, anchors);
  }
  all_.remove_if([](const Remnant& r) { return r.anchors.empty(); });
}

int Remnants::OnEviction(const PrefixKey& key, int depth) {
  int dropped = 0;
  for (Remnant& remnant : all_) {
    const auto at = static_cast<std::size_t>(depth);
    if (remnant.keys.size() <= at || remnant.keys[at] != key) continue;
    remnant.keys.resize(at);
    remnant.ids.resize(at * kBlockTokens);
    dropped += CutAnchors(remnant.anchors, depth * kBlockTokens);
  }
  all_.remove_if([](const Remnant& r) { return r.anchors.empty(); });
  return dropped;
}

bool Remnants::DropOne() {
  for (auto remnant = all_.begin(); remnant != all_.end(); ++remnant) {
    const int end = static_cast<int>(remnant->ids.size());
    if (!DropUnshared(remnant->anchors, end)) continue;
    if (remnant->anchors.empty()) all_.erase(remnant);
    return true;
  }
  return false;
}

void Remnants::Touch(const Remnant* remnant) {
  const auto at = std::ranges::find_if(
      all_, [remnant](const Remnant& r) { return &r == remnant; });
  if (at != all_.end()) all_.splice(all_.end(), all_, at);
}

std::string Remnants::Describe() const {
  std::string text;
  for (const Remnant& remnant : all_) {
    text += fmt::format("remnant root={} blocks={}", ToHex(remnant.root),
                        remnant.keys.size());
    for (const PrefixKey& key : remnant.keys) text += " " + ToHex(key);
    for (const AnchorRef& anchor : remnant.anchors) {
      text +=
          fmt::format(" {}@{}", AnchorKindName(anchor->kind), anchor->position);
    }
    text += '\n';
  }
  return text;
}

}  // namespace holdfast::engine
