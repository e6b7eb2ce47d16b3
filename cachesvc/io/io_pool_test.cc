#include "cachesvc/io/io_pool.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/aligned_buffer.h"
#include "shared/fs/testing/fake_file_system.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = kBlockAlignment;

Deadline In(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

// The real file system under both pools.
class IoPoolTest : public ::testing::TestWithParam<IoPoolKind> {
 protected:
  IoPoolTest() : fixed_(64 * kPage) {
    std::string pattern = ::testing::TempDir() + "io_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    IoPoolOptions options{.kind = GetParam(), .depth = 4, .max_queued = 64};
    options.fixed_buffers = {fixed_.span()};
    auto pool = MakeIoPool(options);
    EXPECT_TRUE(pool.ok()) << pool.status();
    if (pool.ok()) pool_ = *std::move(pool);
  }
  ~IoPoolTest() override {
    pool_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::shared_ptr<File> Create(const std::string& name) {
    return *RealFileSystem().Open(folder_ + "/" + name, OpenMode::kCreate);
  }
  std::shared_ptr<File> Open(const std::string& name) {
    return *RealFileSystem().Open(folder_ + "/" + name, OpenMode::kRead);
  }
  absl::Status Run(std::vector<IoRequest> requests) {
    auto batch = pool_->Submit(std::move(requests), nullptr);
    if (!batch.ok()) return batch.status();
    return (*batch)->WaitAll(In(60));
  }

  AlignedBuffer fixed_;
  std::string folder_;
  std::unique_ptr<IoPool> pool_;
};

TEST_P(IoPoolTest, MovesManyPiecesBothWays) {
  AlignedBuffer data(32 * kPage);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data.data()[i] = static_cast<std::byte>(i / kPage * 3 + i);
  }
  std::vector<IoRequest> writes;
  const auto file = Create("a");
  ASSERT_TRUE(file->Allocate(data.size()).ok());
  for (std::size_t i = 0; i < 32; ++i) {
    writes.push_back(IoRequest::Write(file, i * kPage,
                                      data.span().subspan(i * kPage, kPage)));
  }
  ASSERT_TRUE(Run(std::move(writes)).ok());
  ASSERT_TRUE(Run({IoRequest::Sync(file)}).ok());
  std::vector<IoRequest> reads;
  const auto again = Open("a");
  for (std::size_t i = 0; i < 32; ++i) {
    reads.push_back(IoRequest::Read(again, i * kPage,
                                    fixed_.span().subspan(i * kPage, kPage)));
  }
  ASSERT_TRUE(Run(std::move(reads)).ok());
  EXPECT_EQ(std::memcmp(fixed_.data(), data.data(), data.size()), 0);
  const IoStats stats = pool_->stats();
  EXPECT_EQ(stats.reads, 32u);
  EXPECT_EQ(stats.writes, 32u);
  EXPECT_EQ(stats.syncs, 1u);
  EXPECT_EQ(stats.read_bytes, data.size());
  EXPECT_EQ(stats.written_bytes, data.size());
  EXPECT_EQ(stats.failed, 0u);
  const bool fixed = pool_->Describe().find("1 fixed") != std::string::npos;
  EXPECT_EQ(stats.fixed_buffer_requests, fixed ? 32u : 0u);
  EXPECT_EQ(pool_->uses_uring(), GetParam() == IoPoolKind::kUring);
}

TEST_P(IoPoolTest, TheEndOfAFileIsAnError) {
  AlignedBuffer data(4 * kPage);
  const auto file = Create("a");
  ASSERT_TRUE(Run({IoRequest::Write(file, 0, data.span().first(kPage))}).ok());
  EXPECT_EQ(Run({IoRequest::Read(Open("a"), 0, data.span())}).code(),
            absl::StatusCode::kOutOfRange);
  // A file open for reading only.
  const auto status = Run({IoRequest::Write(Open("a"), 0, data.span())});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/a"));
  EXPECT_EQ(pool_->stats().failed, 2u);
}

TEST_P(IoPoolTest, RefusesWhatDirectIoCannotMove) {
  AlignedBuffer data(2 * kPage);
  const auto file = Create("a");
  for (const auto& [offset, bytes] :
       {std::pair<std::size_t, std::size_t>{1, kPage}, {0, 100}, {0, 0}}) {
    EXPECT_EQ(
        Run({IoRequest::Write(file, offset, data.span().first(bytes))}).code(),
        absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(
      Run({IoRequest::Write(file, 0, data.span().subspan(8, kPage))}).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_->stats().writes, 0u);
}

TEST_P(IoPoolTest, ItsQueueIsBounded) {
  AlignedBuffer data(kPage);
  const auto file = Create("a");
  std::vector<IoRequest> writes(65, IoRequest::Write(file, 0, data.span()));
  EXPECT_EQ(Run(std::move(writes)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool_->stats().writes, 0u);
}

TEST_P(IoPoolTest, MemoryLivesUntilTheLastRequestEnds) {
  auto data = std::make_shared<AlignedBuffer>(8 * kPage);
  const std::weak_ptr<AlignedBuffer> watch = data;
  const auto file = Create("a");
  auto batch = pool_->Submit({IoRequest::Write(file, 0, data->span()),
                              IoRequest::Write(file, 8 * kPage, data->span())},
                             data);
  ASSERT_TRUE(batch.ok());
  data.reset();
  ASSERT_TRUE((*batch)->WaitAll(In(60)).ok());
  EXPECT_TRUE((*batch)->Done());
  EXPECT_TRUE(watch.expired());
}

INSTANTIATE_TEST_SUITE_P(Pools, IoPoolTest,
                         ::testing::Values(IoPoolKind::kUring,
                                           IoPoolKind::kThreads),
                         [](const auto& info) {
                           return info.param == IoPoolKind::kUring ? "Uring"
                                                                   : "Threads";
                         });

// A file whose one read waits for the test.
class StuckFile final : public File {
 public:
  explicit StuckFile(std::shared_future<void> release)
      : release_(std::move(release)) {}
  absl::StatusOr<std::size_t> ReadAt(std::span<std::byte> to,
                                     std::uint64_t) override {
    begun_.set_value();
    release_.wait();
    return to.size();
  }
  absl::StatusOr<std::size_t> WriteAt(std::span<const std::byte>,
                                      std::uint64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status Allocate(std::uint64_t) override { return absl::OkStatus(); }
  absl::Status DataSync() override { return absl::OkStatus(); }
  int fd() const override { return -1; }
  const std::string& path() const override { return path_; }
  void AwaitRead() { begun_.get_future().wait(); }

 private:
  std::promise<void> begun_;
  std::shared_future<void> release_;
  std::string path_ = "stuck";
};

TEST(IoBatchTest, AWaitEndsAtItsDeadlineAndTheMemoryStays) {
  std::promise<void> release;
  auto pool = *MakeIoPool({.kind = IoPoolKind::kThreads, .depth = 1});
  const auto file = std::make_shared<StuckFile>(release.get_future().share());
  auto data = std::make_shared<AlignedBuffer>(kPage);
  const std::weak_ptr<AlignedBuffer> watch = data;
  auto batch = *pool->Submit({IoRequest::Read(file, 0, data->span())}, data);
  data.reset();
  EXPECT_EQ(batch->WaitAll(In(0)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(batch->Wait(0, In(0)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(batch->Done());
  EXPECT_FALSE(watch.expired());
  release.set_value();
  EXPECT_TRUE(batch->WaitAll(In(60)).ok());
  EXPECT_TRUE(watch.expired());
}

TEST(IoBatchTest, AStuckDiskDoesNotHoldThePoolsEnd) {
  std::promise<void> release;
  auto pool = *MakeIoPool({.kind = IoPoolKind::kThreads,
                           .depth = 1,
                           .stop_wait = std::chrono::milliseconds(20)});
  const auto file = std::make_shared<StuckFile>(release.get_future().share());
  auto data = std::make_shared<AlignedBuffer>(kPage);
  const std::weak_ptr<AlignedBuffer> watch = data;
  const auto under_way =
      *pool->Submit({IoRequest::Read(file, 0, data->span())}, data);
  const auto waiting =
      *pool->Submit({IoRequest::Read(file, 0, data->span())}, data);
  data.reset();
  file->AwaitRead();
  pool.reset();
  EXPECT_EQ(waiting->WaitAll(In(60)).code(), absl::StatusCode::kCancelled);
  // The disk may still write to it.
  EXPECT_FALSE(watch.expired());
  release.set_value();
  EXPECT_TRUE(under_way->WaitAll(In(60)).ok());
  EXPECT_TRUE(watch.expired());
}

TEST(IoPoolChoiceTest, SaysWhichRunsAndRefusesFilesItCannotServe) {
  const auto threads = *MakeIoPool({.kind = IoPoolKind::kThreads, .depth = 2});
  EXPECT_EQ(threads->Describe(), "pread/pwrite, 2 threads (as asked for)");
  const auto best = MakeIoPool({});
  ASSERT_TRUE(best.ok());
  if (!(*best)->uses_uring()) {
    EXPECT_THAT((*best)->Describe(), HasSubstr("io_uring is not available"));
    return;
  }
  EXPECT_EQ((*best)->Describe(), "io_uring, depth 16, no fixed buffers");
  std::promise<void> release;
  release.set_value();
  const auto file = std::make_shared<StuckFile>(release.get_future().share());
  AlignedBuffer data(kPage);
  EXPECT_EQ((*best)
                ->Submit({IoRequest::Read(file, 0, data.span())}, nullptr)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(MakeIoPool({.depth = 0}).ok());
}

}  // namespace
}  // namespace holdfast::cachesvc
