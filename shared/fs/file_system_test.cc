#include "shared/fs/file_system.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/aligned_buffer.h"
#include "shared/cache_layout.h"
#include "shared/fs/testing/fake_file_system.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using testing::FakeFileSystem;
using testing::FaultPoint;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kPage = kBlockAlignment;

AlignedBuffer Filled(std::size_t bytes, int value) {
  AlignedBuffer buffer(bytes);
  std::memset(buffer.data(), value, bytes);
  return buffer;
}

// Both file systems keep the same promises.
class AnyFileSystemTest : public ::testing::TestWithParam<bool> {
 protected:
  AnyFileSystemTest() : fake_(faults_) {
    if (real()) {
      std::string pattern = ::testing::TempDir() + "fs_XXXXXX";
      folder_ = mkdtemp(pattern.data());
    } else {
      folder_ = "/fake";
      EXPECT_TRUE(fake_.MakeDirectory(folder_).ok());
    }
  }
  ~AnyFileSystemTest() override {
    if (real()) std::filesystem::remove_all(folder_);
  }

  static bool real() { return GetParam(); }
  FileSystem& fs() {
    return real() ? RealFileSystem() : static_cast<FileSystem&>(fake_);
  }
  std::string Path(const std::string& name) { return folder_ + "/" + name; }
  void Write(const std::string& name, int value) {
    auto file = fs().Open(Path(name), OpenMode::kCreate);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Allocate(2 * kPage).ok());
    const AlignedBuffer page = Filled(2 * kPage, value);
    const auto n = (*file)->WriteAt(page.span(), 0);
    ASSERT_TRUE(n.ok()) << n.status();
    ASSERT_EQ(*n, 2 * kPage);
    ASSERT_TRUE((*file)->DataSync().ok());
  }

  FaultPoint faults_;
  FakeFileSystem fake_;
  std::string folder_;
};

TEST_P(AnyFileSystemTest, KeepsWhatIsWritten) {
  Write("a", 7);
  auto file = fs().Open(Path("a"), OpenMode::kRead);
  ASSERT_TRUE(file.ok()) << file.status();
  AlignedBuffer read(4 * kPage);
  const auto n = (*file)->ReadAt(read.span(), kPage);
  ASSERT_TRUE(n.ok()) << n.status();
  EXPECT_EQ(*n, kPage);  // the end of the file
  EXPECT_EQ(read.data()[kPage - 1], std::byte{7});
  EXPECT_EQ((*file)->fd() >= 0, real());
}

TEST_P(AnyFileSystemTest, NamesAreExclusiveAndRenamesReplace) {
  Write("a", 1);
  EXPECT_EQ(fs().Open(Path("a"), OpenMode::kCreate).status().code(),
            absl::StatusCode::kAlreadyExists);
  Write("b", 2);
  const auto open = fs().Open(Path("a"), OpenMode::kRead);
  EXPECT_TRUE(fs().Rename(Path("b"), Path("a")).ok());
  EXPECT_TRUE(fs().SyncDirectory(folder_).ok());
  EXPECT_EQ(fs().Open(Path("b"), OpenMode::kRead).status().code(),
            absl::StatusCode::kNotFound);
  // Whoever holds the old file still reads it.
  AlignedBuffer page(kPage);
  ASSERT_TRUE((*open)->ReadAt(page.span(), 0).ok());
  EXPECT_EQ(page.data()[0], std::byte{1});
  const auto entries = fs().List(folder_);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].bytes, 2 * kPage);
}

TEST_P(AnyFileSystemTest, ErrorsNameTheCallAndThePath) {
  const auto status = fs().Unlink(Path("none"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unlink"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("none")));
  EXPECT_FALSE(fs().List(Path("none")).ok());
  EXPECT_FALSE(fs().SyncDirectory(Path("none")).ok());
  EXPECT_TRUE(fs().MakeDirectory(folder_).ok());  // is there already
  const auto free = fs().FreeBytes(folder_);
  ASSERT_TRUE(free.ok());
  EXPECT_GT(*free, 0u);
}

INSTANTIATE_TEST_SUITE_P(RealAndFake, AnyFileSystemTest,
                         ::testing::Values(true, false), [](const auto& info) {
                           return info.param ? "Real" : "Fake";
                         });

class FakeFileSystemTest : public ::testing::Test {
 protected:
  FakeFileSystemTest() : fs_(faults_) {
    EXPECT_TRUE(fs_.MakeDirectory("/d").ok());
    faults_.Clear();
  }
  FaultPoint faults_;
  FakeFileSystem fs_;
};

TEST_F(FakeFileSystemTest, ACrashLosesUnsyncedDataAndNames) {
  const AlignedBuffer page = Filled(kPage, 9);
  auto synced = fs_.Open("/d/synced", OpenMode::kCreate);
  ASSERT_TRUE((*synced)->WriteAt(page.span(), 0).ok());
  ASSERT_TRUE((*synced)->DataSync().ok());
  ASSERT_TRUE((*synced)->WriteAt(page.span(), kPage).ok());
  ASSERT_TRUE(fs_.Open("/d/empty", OpenMode::kCreate).ok());
  ASSERT_TRUE(fs_.SyncDirectory("/d").ok());
  ASSERT_TRUE(fs_.Unlink("/d/empty").ok());
  auto unnamed = fs_.Open("/d/unnamed", OpenMode::kCreate);
  ASSERT_TRUE((*unnamed)->WriteAt(page.span(), 0).ok());
  ASSERT_TRUE((*unnamed)->DataSync().ok());
  fs_.Reboot(0);
  EXPECT_THAT(fs_.Names("/d"), ElementsAre("empty", "synced"));
  EXPECT_EQ(fs_.Content("/d/synced").size(), kPage);
}

TEST_F(FakeFileSystemTest, OtherSeedsKeepSomeOfIt) {
  const AlignedBuffer pages = Filled(64 * kPage, 9);
  auto file = fs_.Open("/d/a", OpenMode::kCreate);
  ASSERT_TRUE((*file)->Allocate(64 * kPage).ok());
  ASSERT_TRUE((*file)->DataSync().ok());
  ASSERT_TRUE(fs_.SyncDirectory("/d").ok());
  ASSERT_TRUE((*file)->WriteAt(pages.span(), 0).ok());
  fs_.Reboot(3);
  const auto content = fs_.Content("/d/a");
  const auto kept =
      std::count(content.begin(), content.end(), std::byte{9}) / kPage;
  EXPECT_GT(kept, 8);
  EXPECT_LT(kept, 56);
}

TEST_F(FakeFileSystemTest, FailsAndWritesShortWhereTold) {
  faults_.FailAt(1, ENOSPC);
  auto file = fs_.Open("/d/a", OpenMode::kCreate);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Allocate(kPage).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*file)->Allocate(kPage).ok());
  faults_.ShortAt(0);
  const AlignedBuffer pages = Filled(4 * kPage, 1);
  EXPECT_EQ((*file)->WriteAt(pages.span(), 0).value(), 2 * kPage);
  faults_.FailFrom(0, EROFS);
  EXPECT_FALSE((*file)->DataSync().ok());
  EXPECT_FALSE(fs_.Unlink("/d/a").ok());
  faults_.CrashAt(0);
  EXPECT_EQ((*file)->DataSync().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fs_.Unlink("/d/a").code(), absl::StatusCode::kUnavailable);
  fs_.Reboot(0);
  faults_.Clear();
  EXPECT_THAT(fs_.Names("/d"), IsEmpty());
}

}  // namespace
}  // namespace holdfast
