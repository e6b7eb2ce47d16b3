#include "shared/fs/testing/fake_file_system.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast::testing {
namespace {

constexpr std::size_t kPage = kBlockAlignment;

std::pair<std::string, std::string> Split(const std::string& path) {
  const auto slash = path.rfind('/');
  HF_CHECK(slash != std::string::npos);
  return {path.substr(0, slash), path.substr(slash + 1)};
}

absl::Status Refuse(int error, const std::string& call,
                    const std::string& path) {
  return absl::ErrnoToStatus(error, fmt::format("{} {}", call, path));
}

}  // namespace

class FakeFile final : public File {
 public:
  FakeFile(FakeFileSystem& system, std::string path,
           std::shared_ptr<FakeFileSystem::Inode> inode)
      : system_(system), path_(std::move(path)), inode_(std::move(inode)) {}

  absl::StatusOr<std::size_t> ReadAt(std::span<std::byte> to,
                                     std::uint64_t offset) override {
    CheckAligned(to.data(), to.size(), offset);
    if (auto s = system_.Check("read", path_); !s.ok()) return s;
    const std::lock_guard lock(system_.mutex_);
    const auto& data = inode_->data;
    if (offset >= data.size()) return std::size_t{0};
    const std::size_t n = std::min(to.size(), data.size() - offset);
    std::memcpy(to.data(), data.data() + offset, n);
    return n;
  }

  absl::StatusOr<std::size_t> WriteAt(std::span<const std::byte> from,
                                      std::uint64_t offset) override {
    CheckAligned(from.data(), from.size(), offset);
    const Fault fault = system_.faults_.Next("write " + path_);
    if (fault.kind == Fault::Kind::kError) {
      return Refuse(fault.error, "write", path_);
    }
    std::size_t n = from.size();
    if (fault.kind != Fault::Kind::kNone) n = n / 2 / kPage * kPage;
    {
      const std::lock_guard lock(system_.mutex_);
      auto& data = inode_->data;
      if (data.size() < offset + n) data.resize(offset + n);
      std::memcpy(data.data() + offset, from.data(), n);
    }
    if (fault.kind == Fault::Kind::kCrash) {
      return absl::UnavailableError("crashed in write " + path_);
    }
    return n;
  }

  absl::Status Allocate(std::uint64_t bytes) override {
    if (auto s = system_.Check("allocate", path_); !s.ok()) return s;
    const std::lock_guard lock(system_.mutex_);
    if (inode_->data.size() < bytes) inode_->data.resize(bytes);
    return absl::OkStatus();
  }

  absl::Status DataSync() override {
    if (auto s = system_.Check("fdatasync", path_); !s.ok()) return s;
    const std::lock_guard lock(system_.mutex_);
    inode_->synced = inode_->data;
    return absl::OkStatus();
  }

  int fd() const override { return -1; }
  const std::string& path() const override { return path_; }

 private:
  // As direct I/O refuses it.
  static void CheckAligned(const void* memory, std::size_t bytes,
                           std::uint64_t offset) {
    HF_CHECK(reinterpret_cast<std::uintptr_t>(memory) % kPage == 0);
    HF_CHECK(bytes % kPage == 0 && offset % kPage == 0);
  }

  FakeFileSystem& system_;
  const std::string path_;
  const std::shared_ptr<FakeFileSystem::Inode> inode_;
};

absl::Status FakeFileSystem::Check(const std::string& call,
                                   const std::string& path) {
  const Fault fault = faults_.Next(call + " " + path);
  if (fault.kind == Fault::Kind::kCrash) {
    return absl::UnavailableError(fmt::format("crashed in {} {}", call, path));
  }
  if (fault.kind == Fault::Kind::kError) {
    return Refuse(fault.error, call, path);
  }
  return absl::OkStatus();
}

absl::StatusOr<FakeFileSystem::Directory*> FakeFileSystem::Find(
    const std::string& path) {
  const auto it = directories_.find(path);
  if (it == directories_.end()) {
    return Refuse(ENOENT, "find directory", path);
  }
  return &it->second;
}

absl::StatusOr<std::shared_ptr<File>> FakeFileSystem::Open(
    const std::string& path, OpenMode mode) {
  if (auto s = Check("open", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  const auto [folder, name] = Split(path);
  const auto directory = Find(folder);
  if (!directory.ok()) return directory.status();
  auto& entries = (*directory)->now;
  const auto it = entries.find(name);
  if (mode == OpenMode::kRead) {
    if (it == entries.end()) return Refuse(ENOENT, "open", path);
    return std::make_shared<FakeFile>(*this, path, it->second);
  }
  if (it != entries.end()) return Refuse(EEXIST, "open", path);
  auto inode = std::make_shared<Inode>();
  entries[name] = inode;
  return std::make_shared<FakeFile>(*this, path, std::move(inode));
}

absl::Status FakeFileSystem::Rename(const std::string& from,
                                    const std::string& to) {
  if (auto s = Check("rename to", to); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  const auto [from_folder, from_name] = Split(from);
  const auto [to_folder, to_name] = Split(to);
  const auto source = Find(from_folder);
  const auto target = Find(to_folder);
  if (!source.ok()) return source.status();
  if (!target.ok()) return target.status();
  const auto it = (*source)->now.find(from_name);
  if (it == (*source)->now.end()) return Refuse(ENOENT, "rename", from);
  const auto inode = it->second;
  (*source)->now.erase(it);
  (*target)->now[to_name] = inode;
  return absl::OkStatus();
}

absl::Status FakeFileSystem::Unlink(const std::string& path) {
  if (auto s = Check("unlink", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  const auto [folder, name] = Split(path);
  const auto directory = Find(folder);
  if (!directory.ok()) return directory.status();
  if ((*directory)->now.erase(name) == 0) {
    return Refuse(ENOENT, "unlink", path);
  }
  return absl::OkStatus();
}

absl::Status FakeFileSystem::SyncDirectory(const std::string& path) {
  if (auto s = Check("fsync directory", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  const auto directory = Find(path);
  if (!directory.ok()) return directory.status();
  (*directory)->durable = (*directory)->now;
  return absl::OkStatus();
}

absl::Status FakeFileSystem::MakeDirectory(const std::string& path) {
  if (auto s = Check("make directory", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  directories_.try_emplace(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirectoryEntry>> FakeFileSystem::List(
    const std::string& path) {
  if (auto s = Check("list", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  const auto directory = Find(path);
  if (!directory.ok()) return directory.status();
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, inode] : (*directory)->now) {
    entries.push_back({name, inode->data.size()});
  }
  return entries;
}

absl::StatusOr<std::uint64_t> FakeFileSystem::FreeBytes(
    const std::string& path) {
  if (auto s = Check("statvfs", path); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

void FakeFileSystem::Reboot(std::uint32_t seed) {
  const std::lock_guard lock(mutex_);
  std::mt19937 random(seed);
  const auto lost = [&] { return seed == 0 || random() % 2 == 0; };
  std::map<Inode*, std::shared_ptr<Inode>> after;
  // The page cache is gone; each dirty page may have reached the disk.
  const auto survive = [&](const std::shared_ptr<Inode>& inode) {
    auto& copy = after[inode.get()];
    if (copy) return copy;
    copy = std::make_shared<Inode>();
    copy->data = inode->synced;
    if (inode->data.size() > copy->data.size() && !lost()) {
      copy->data.resize(inode->data.size());
    }
    for (std::size_t at = 0; at < copy->data.size(); at += kPage) {
      if (at >= inode->data.size()) break;
      const std::size_t n =
          std::min({kPage, copy->data.size() - at, inode->data.size() - at});
      if (std::memcmp(copy->data.data() + at, inode->data.data() + at, n) !=
              0 &&
          !lost()) {
        std::memcpy(copy->data.data() + at, inode->data.data() + at, n);
      }
    }
    copy->synced = copy->data;
    return copy;
  };
  for (auto& [path, directory] : directories_) {
    std::set<std::string> names;
    for (const auto& [name, inode] : directory.now) names.insert(name);
    for (const auto& [name, inode] : directory.durable) names.insert(name);
    Entries entries;
    for (const std::string& name : names) {
      const auto now = directory.now.find(name);
      const auto durable = directory.durable.find(name);
      const bool same = now != directory.now.end() &&
                        durable != directory.durable.end() &&
                        now->second == durable->second;
      const bool old = same || lost();
      const auto& chosen = old ? durable : now;
      if (chosen != (old ? directory.durable.end() : directory.now.end())) {
        entries[name] = survive(chosen->second);
      }
    }
    directory.now = entries;
    directory.durable = entries;
  }
}

std::vector<std::string> FakeFileSystem::Names(
    const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  const auto it = directories_.find(directory);
  if (it == directories_.end()) return names;
  for (const auto& [name, inode] : it->second.now) names.push_back(name);
  return names;
}

std::uint64_t FakeFileSystem::TotalBytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [path, directory] : directories_) {
    for (const auto& [name, inode] : directory.now) sum += inode->data.size();
  }
  return sum;
}

std::shared_ptr<FakeFileSystem::Inode> FakeFileSystem::FindInode(
    const std::string& path) const {
  const auto [folder, name] = Split(path);
  const auto directory = directories_.find(folder);
  if (directory == directories_.end()) return nullptr;
  const auto it = directory->second.now.find(name);
  return it == directory->second.now.end() ? nullptr : it->second;
}

bool FakeFileSystem::Exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return FindInode(path) != nullptr;
}

std::vector<std::byte> FakeFileSystem::Content(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto inode = FindInode(path);
  return inode ? inode->data : std::vector<std::byte>();
}

void FakeFileSystem::FlipBit(const std::string& path, std::uint64_t bit) {
  const std::lock_guard lock(mutex_);
  const auto inode = FindInode(path);
  HF_CHECK(inode != nullptr && bit / 8 < inode->data.size());
  inode->data[bit / 8] ^= std::byte{1} << (bit % 8);
  inode->synced = inode->data;
}

}  // namespace holdfast::testing
