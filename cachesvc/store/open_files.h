// Files that restores hold open. One that is deleted meanwhile keeps its bytes
// on the disk until the last of them closes it.
#ifndef HOLDFAST_CACHESVC_STORE_OPEN_FILES_H_
#define HOLDFAST_CACHESVC_STORE_OPEN_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cachesvc/format/meta.h"
#include "shared/fs/file_system.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

// No locks; the files may be closed at any moment by other threads. What is
// remembered of closed ones is at most as much as of open ones.
class OpenFiles {
 public:
  void Opened(const FileKey& key, const std::shared_ptr<File>& file);
  bool IsOpen(const FileKey& key) const;
  // The file of that name, and so many bytes, was deleted: a later one of the
  // same name is another.
  void Deleted(const FileKey& key, std::uint64_t bytes);
  // Of deleted files that are still open.
  std::uint64_t HeldBytes() const;

 private:
  using Holders = std::vector<std::weak_ptr<File>>;
  struct Gone {
    Holders holders;
    std::uint64_t bytes = 0;
  };

  static bool AnyOpen(const Holders& holders);
  void Prune();

  std::unordered_map<FileKey, Holders, PrefixKeyHash> open_;
  std::vector<Gone> deleted_;
  std::size_t prune_at_ = 64;  // entries of open_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_OPEN_FILES_H_
