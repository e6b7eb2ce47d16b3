// RocksDB's file system over the machine's, which loses at a crash what was not
// synced: bytes since the last Sync() of their file, and files whose folder was
// not synced since they were made.
#ifndef HOLDFAST_CACHESVC_INDEX_TESTING_DROPPING_FILE_SYSTEM_H_
#define HOLDFAST_CACHESVC_INDEX_TESTING_DROPPING_FILE_SYSTEM_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "rocksdb/file_system.h"
#include "shared/testing/fault_point.h"

namespace holdfast::cachesvc::testing {

class DroppingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit DroppingFileSystem(holdfast::testing::FaultPoint& faults)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), faults_(faults) {}
  const char* Name() const override { return "holdfast.dropping"; }

  rocksdb::IOStatus NewWritableFile(
      const std::string& name, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override {
    if (auto s = Check("rocksdb create"); !s.ok()) return s;
    auto status = target()->NewWritableFile(name, options, result, debug);
    if (!status.ok()) return status;
    {
      const std::lock_guard lock(mutex_);
      files_[name] = {};
    }
    *result = std::make_unique<Writable>(std::move(*result), name, *this);
    return status;
  }

  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    if (auto s = Check("rocksdb rename"); !s.ok()) return s;
    auto status = target()->RenameFile(from, to, options, debug);
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(from);
    if (status.ok() && it != files_.end()) {
      // Renaming over a file is taken as done at once; RocksDB syncs the folder
      // right after.
      files_[to] = it->second;
      files_[to].named = true;
      files_.erase(from);
    }
    return status;
  }

  rocksdb::IOStatus DeleteFile(const std::string& name,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    if (auto s = Check("rocksdb delete"); !s.ok()) return s;
    const std::lock_guard lock(mutex_);
    files_.erase(name);
    return target()->DeleteFile(name, options, debug);
  }

  rocksdb::IOStatus NewDirectory(const std::string& name,
                                 const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* debug) override {
    auto status = target()->NewDirectory(name, options, result, debug);
    if (status.ok()) {
      *result = std::make_unique<Directory>(std::move(*result), name, *this);
    }
    return status;
  }

  // Call after the database was closed.
  void Crash() {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, file] : files_) {
      std::error_code error;
      if (!file.named) {
        std::filesystem::remove(name, error);
      } else if (std::filesystem::file_size(name, error) > file.synced &&
                 !error) {
        std::filesystem::resize_file(name, file.synced, error);
      }
    }
    files_.clear();
  }

 private:
  struct FileState {
    std::uint64_t written = 0;
    std::uint64_t synced = 0;
    bool named = false;  // its folder was synced
  };

  class Writable final : public rocksdb::FSWritableFileWrapper {
   public:
    Writable(std::unique_ptr<rocksdb::FSWritableFile> file, std::string name,
             DroppingFileSystem& system)
        : FSWritableFileWrapper(file.get()),
          file_(std::move(file)),
          name_(std::move(name)),
          system_(system) {}

    rocksdb::IOStatus Append(const rocksdb::Slice& data,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (auto s = system_.Check("rocksdb append"); !s.ok()) return s;
      auto status = file_->Append(data, options, debug);
      if (status.ok()) system_.Change(name_, data.size(), false);
      return status;
    }
    rocksdb::IOStatus Append(const rocksdb::Slice& data,
                             const rocksdb::IOOptions& options,
                             const rocksdb::DataVerificationInfo&,
                             rocksdb::IODebugContext* debug) override {
      return Append(data, options, debug);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
      if (auto s = system_.Check("rocksdb sync"); !s.ok()) return s;
      auto status = file_->Sync(options, debug);
      if (status.ok()) system_.Change(name_, 0, true);
      return status;
    }
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                            rocksdb::IODebugContext* debug) override {
      return Sync(options, debug);
    }

   private:
    std::unique_ptr<rocksdb::FSWritableFile> file_;
    const std::string name_;
    DroppingFileSystem& system_;
  };

  class Directory final : public rocksdb::FSDirectoryWrapper {
   public:
    Directory(std::unique_ptr<rocksdb::FSDirectory> directory, std::string name,
              DroppingFileSystem& system)
        : FSDirectoryWrapper(directory.get()),
          directory_(std::move(directory)),
          name_(std::move(name)),
          system_(system) {}
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions&,
                            rocksdb::IODebugContext*) override {
      return system_.SyncNames(name_);
    }
    rocksdb::IOStatus FsyncWithDirOptions(
        const rocksdb::IOOptions&, rocksdb::IODebugContext*,
        const rocksdb::DirFsyncOptions&) override {
      return system_.SyncNames(name_);
    }

   private:
    std::unique_ptr<rocksdb::FSDirectory> directory_;
    const std::string name_;
    DroppingFileSystem& system_;
  };

  rocksdb::IOStatus Check(const std::string& call) {
    const auto fault = faults_.Next(call);
    if (fault.kind == holdfast::testing::Fault::Kind::kNone) {
      return rocksdb::IOStatus::OK();
    }
    return rocksdb::IOStatus::IOError("fault in " + call);
  }
  void Change(const std::string& name, std::uint64_t bytes, bool synced) {
    const std::lock_guard lock(mutex_);
    FileState& file = files_[name];
    file.written += bytes;
    if (synced) file.synced = file.written;
  }
  rocksdb::IOStatus SyncNames(const std::string& folder) {
    if (auto s = Check("rocksdb fsync folder"); !s.ok()) return s;
    const std::lock_guard lock(mutex_);
    for (auto& [name, file] : files_) {
      if (std::filesystem::path(name).parent_path() ==
          std::filesystem::path(folder)) {
        file.named = true;
      }
    }
    return rocksdb::IOStatus::OK();
  }

  holdfast::testing::FaultPoint& faults_;
  std::mutex mutex_;
  std::map<std::string, FileState> files_;  // guarded by mutex_
};

}  // namespace holdfast::cachesvc::testing

#endif  // HOLDFAST_CACHESVC_INDEX_TESTING_DROPPING_FILE_SYSTEM_H_
