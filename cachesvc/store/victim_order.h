// Which manifest of a tier goes first. Kept in order while files come, go and
// are used, so that a choice looks at as many entries as there are models and
// running restores, however many files there are. No locks.
#ifndef HOLDFAST_CACHESVC_STORE_VICTIM_ORDER_H_
#define HOLDFAST_CACHESVC_STORE_VICTIM_ORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cachesvc/format/meta.h"
#include "shared/sha256.h"

namespace holdfast::cachesvc {

// What decides about a manifest. Whoever changes any of it takes the manifest
// out before, and puts it back after.
struct VictimPlace {
  FileKind kind = FileKind::kAnchor;
  Sha256Digest fingerprint{};
  FileKey file_key{};
  std::uint64_t last_used_s = 0;
  double worth = 0;  // AnchorWorth(); of anchors
};

// The logarithm of (hits + 1) x tokens saved / bytes, halved for every day
// unused, but for a part that depends on nothing but the time of asking: equal
// for all anchors, so their order never changes by itself. `bytes`: of the
// anchor and the chunks that only it needs.
double AnchorWorth(std::uint64_t hits, std::uint64_t tokens,
                   std::uint64_t bytes, std::uint64_t last_used_s);

class VictimOrder {
 public:
  void Add(const VictimPlace& place);
  void Remove(const VictimPlace& place);
  // Files of models that are not attached first, by their last use; then
  // sessions by their last use, anchors by their worth; equal ones by their
  // keys. Those that `busy` takes are passed over.
  std::optional<FileKey> First(
      FileKind kind, const std::optional<Sha256Digest>& attached,
      const std::function<bool(const FileKey&)>& busy) const;

 private:
  struct OfModel {
    std::set<std::pair<std::uint64_t, FileKey>> by_use;
    std::set<std::pair<double, FileKey>> by_worth;  // anchors alone
  };
  std::map<std::pair<FileKind, Sha256Digest>, OfModel> models_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_VICTIM_ORDER_H_
