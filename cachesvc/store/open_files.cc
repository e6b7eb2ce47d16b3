#include "cachesvc/store/open_files.h"

#include <algorithm>
#include <utility>

namespace holdfast::cachesvc {

bool OpenFiles::AnyOpen(const Holders& holders) {
  return std::any_of(holders.begin(), holders.end(),
                     [](const auto& file) { return !file.expired(); });
}

void OpenFiles::Opened(const FileKey& key, const std::shared_ptr<File>& file) {
  if (open_.size() >= prune_at_) Prune();
  Holders& holders = open_[key];
  std::erase_if(holders, [](const auto& held) { return held.expired(); });
  holders.push_back(file);
}

void OpenFiles::Prune() {
  std::erase_if(open_,
                [](const auto& entry) { return !AnyOpen(entry.second); });
  prune_at_ = std::max<std::size_t>(64, 2 * open_.size());
}

bool OpenFiles::IsOpen(const FileKey& key) const {
  const auto it = open_.find(key);
  return it != open_.end() && AnyOpen(it->second);
}

void OpenFiles::Deleted(const FileKey& key, std::uint64_t bytes) {
  std::erase_if(deleted_,
                [](const Gone& gone) { return !AnyOpen(gone.holders); });
  const auto it = open_.find(key);
  if (it == open_.end()) return;
  if (AnyOpen(it->second)) deleted_.push_back({std::move(it->second), bytes});
  open_.erase(it);
}

std::uint64_t OpenFiles::HeldBytes() const {
  std::uint64_t sum = 0;
  for (const Gone& gone : deleted_) {
    if (AnyOpen(gone.holders)) sum += gone.bytes;
  }
  return sum;
}

}  // namespace holdfast::cachesvc
