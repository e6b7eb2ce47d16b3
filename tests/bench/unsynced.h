// The machine's files and an index without waiting for the disk: to make many
// files before something is measured on them.
#ifndef HOLDFAST_TESTS_BENCH_UNSYNCED_H_
#define HOLDFAST_TESTS_BENCH_UNSYNCED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/index/index.h"
#include "shared/fs/file_system.h"

namespace holdfast::bench {

class UnsyncedFile final : public File {
 public:
  explicit UnsyncedFile(std::shared_ptr<File> file) : file_(std::move(file)) {}
  absl::StatusOr<std::size_t> ReadAt(std::span<std::byte> to,
                                     std::uint64_t offset) override {
    return file_->ReadAt(to, offset);
  }
  absl::StatusOr<std::size_t> WriteAt(std::span<const std::byte> from,
                                      std::uint64_t offset) override {
    return file_->WriteAt(from, offset);
  }
  absl::Status Allocate(std::uint64_t) override { return absl::OkStatus(); }
  absl::Status DataSync() override { return absl::OkStatus(); }
  int fd() const override { return file_->fd(); }
  const std::string& path() const override { return file_->path(); }

 private:
  std::shared_ptr<File> file_;
};

class UnsyncedFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& path,
                                             OpenMode mode) override {
    auto file = real_.Open(path, mode);
    if (!file.ok()) return file.status();
    return std::make_shared<UnsyncedFile>(*std::move(file));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return real_.Rename(from, to);
  }
  absl::Status Unlink(const std::string& path) override {
    return real_.Unlink(path);
  }
  absl::Status SyncDirectory(const std::string&) override {
    return absl::OkStatus();
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return real_.MakeDirectory(path);
  }
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override {
    return real_.List(path);
  }
  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) override {
    return real_.FreeBytes(path);
  }

 private:
  FileSystem& real_ = RealFileSystem();
};

class UnsyncedIndex final : public cachesvc::Index {
 public:
  explicit UnsyncedIndex(cachesvc::Index& index) : index_(index) {}
  absl::Status Write(const cachesvc::IndexBatch& batch,
                     cachesvc::Durability) override {
    return index_.Write(batch, cachesvc::Durability::kLazy);
  }
  absl::StatusOr<std::optional<std::string>> Get(
      cachesvc::Table table, const std::string& key) override {
    return index_.Get(table, key);
  }
  absl::StatusOr<std::vector<std::optional<std::string>>> GetMany(
      cachesvc::Table table, std::span<const std::string> keys) override {
    return index_.GetMany(table, keys);
  }
  absl::Status Scan(
      cachesvc::Table table,
      const std::function<bool(std::string_view, std::string_view)>& visit)
      override {
    return index_.Scan(table, visit);
  }
  std::uint64_t DiskBytes() override { return index_.DiskBytes(); }

 private:
  cachesvc::Index& index_;
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_UNSYNCED_H_
