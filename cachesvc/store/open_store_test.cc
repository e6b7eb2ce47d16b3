#include "cachesvc/store/open_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::Deepest;
using ::testing::HasSubstr;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::PromptIds;
using testing::ReadBack;

// Real files, the real index, both I/O pools.
class OpenStoreTest : public ::testing::TestWithParam<IoPoolKind> {
 protected:
  OpenStoreTest() {
    std::string pattern = ::testing::TempDir() + "store_XXXXXX";
    base_ = mkdtemp(pattern.data());
    options_.store.folder = base_ + "/deep/cache";
    options_.store.limits.free_floor_bytes = 0;
    options_.pool.kind = GetParam();
  }
  ~OpenStoreTest() override {
    opened_.reset();
    std::filesystem::remove_all(base_);
  }
  void Open() {
    opened_.reset();
    auto opened = OpenStore(options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    opened_ = *std::move(opened);
    opened_->store->SetAttached(testing::Fingerprint("model"));
  }
  ChunkStore& store() { return *opened_->store; }

  std::string base_;
  OpenStoreOptions options_;
  std::unique_ptr<OpenedStore> opened_;
};

TEST_P(OpenStoreTest, KeepsEverythingOverRestarts) {
  CacheLayout layout = testing::WorldLayout();
  layout.views[0].bytes_per_token = 12002;  // some MiB a chunk
  layout.sections[1].bytes = 3'000'001;
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024), "model", layout);
  const auto session =
      MakeSession(PromptIds(1024, 1, 1700), "s", 1500, 0, "model", layout);
  Open();
  const auto a = store().WriteManifest(anchor->write);
  const auto s = store().WriteManifest(session->write);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->chunks_shared, 2u);
  store().NoteUse(a->file_key);
  for (int run = 0; run < 3; ++run) {
    EXPECT_TRUE(ReadBack(store(), *anchor, a->file_key, 1024).ok());
    EXPECT_TRUE(ReadBack(store(), *session, s->file_key, 1700).ok());
    EXPECT_TRUE(ReadBack(store(), *session, s->file_key, 512).ok());
    EXPECT_EQ(Deepest(store(), *session)->position, 1700u);
    EXPECT_EQ(store().ShowManifest(a->file_key)->hits, 1u);
    Open();
    EXPECT_EQ(store().sweep_report().rows, 6u);
  }
  EXPECT_EQ(opened_->pool->uses_uring(), GetParam() == IoPoolKind::kUring);
}

TEST_P(OpenStoreTest, ADamagedIndexIsRebuilt) {
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
  Open();
  const auto a = store().WriteManifest(anchor->write);
  ASSERT_TRUE(a.ok());
  opened_.reset();
  const std::string index = options_.store.folder + "/index";
  for (const auto& entry : std::filesystem::directory_iterator(index)) {
    const std::string name = entry.path().filename();
    if (name.rfind("MANIFEST", 0) == 0) {
      std::filesystem::resize_file(entry.path(), 5);
    }
  }
  Open();
  EXPECT_NE(opened_->index_was_damaged, "");
  EXPECT_EQ(store().sweep_report().adopted, 3u);
  EXPECT_TRUE(ReadBack(store(), *anchor, a->file_key, 1024).ok());
  Open();
  EXPECT_EQ(opened_->index_was_damaged, "");
  // A lost one too.
  opened_.reset();
  std::filesystem::remove_all(index);
  Open();
  EXPECT_TRUE(ReadBack(store(), *anchor, a->file_key, 1024).ok());
}

TEST_P(OpenStoreTest, RefusesFoldersItMayNotUse) {
  Open();
  const auto second = OpenStore(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("in use by process " + std::to_string(getpid())));
  opened_.reset();
  const std::string& folder = options_.store.folder;
  struct stat info;
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(chmod(folder.c_str(), 0770), 0);
  const auto open = OpenStore(options_);
  EXPECT_EQ(open.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("0700"));
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  Open();
  if (geteuid() != 0) return;
  opened_.reset();
  ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_EQ(OpenStore(options_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

INSTANTIATE_TEST_SUITE_P(Pools, OpenStoreTest,
                         ::testing::Values(IoPoolKind::kUring,
                                           IoPoolKind::kThreads),
                         [](const auto& info) {
                           return info.param == IoPoolKind::kUring ? "Uring"
                                                                   : "Threads";
                         });

}  // namespace
}  // namespace holdfast::cachesvc
