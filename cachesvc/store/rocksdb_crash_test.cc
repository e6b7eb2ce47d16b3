// The chunk store over the real RocksDB, whose file system loses at a crash
// what RocksDB had not synced, while the cache files' loses what the store had
// not.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "cachesvc/index/rocksdb_index.h"
#include "cachesvc/index/testing/dropping_file_system.h"
#include "cachesvc/store/testing/fault_client.h"
#include "cachesvc/store/testing/store_world.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"

namespace holdfast::cachesvc {
namespace {

using testing::DroppingFileSystem;
using testing::FaultClient;
using testing::StoreWorld;

class RocksWorld {
 public:
  RocksWorld() {
    std::string pattern = ::testing::TempDir() + "crash_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    Start();
    world.faults.Clear();
  }
  ~RocksWorld() {
    world.store.reset();
    index_.reset();
    std::filesystem::remove_all(folder_);
  }

  void CrashAndStart(std::uint32_t seed) {
    world.store.reset();
    index_.reset();
    dropping_->Crash();
    world.fs.Reboot(seed);
    world.faults.Clear();
    Start();
  }

  StoreWorld world;

 private:
  void Start() {
    dropping_ = std::make_shared<DroppingFileSystem>(world.faults);
    env_ = rocksdb::NewCompositeEnv(dropping_);
    RocksDbOptions options;
    options.folder = folder_ + "/index";
    options.env = env_.get();
    auto index = OpenRocksDbIndex(options);
    ASSERT_TRUE(index.ok()) << index.status();
    index_ = *std::move(index);
    world.index = index_.get();
    const auto opened = world.Open();
    ASSERT_TRUE(opened.ok()) << opened;
  }

  std::string folder_;
  std::shared_ptr<DroppingFileSystem> dropping_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<Index> index_;
};

TEST(RocksDbCrashTest, AcknowledgedFilesSurviveAndDeletedOnesDoNot) {
  std::int64_t calls = 0;
  {
    RocksWorld rocks;
    FaultClient client(rocks.world);
    client.Run();
    calls = rocks.world.faults.calls();
    client.Check("without a fault");
  }
  ASSERT_GT(calls, 150);
  // RocksDB's own threads call too, so k is not always the same call; over the
  // stride every phase is met.
  const std::int64_t stride = std::max<std::int64_t>(1, calls / 40);
  for (std::int64_t k = 1; k < calls; k += stride) {
    RocksWorld rocks;
    rocks.world.faults.CrashAt(k);
    FaultClient client(rocks.world);
    client.Run();
    const std::string when =
        fmt::format("crash at call {} ({})", k, rocks.world.faults.CallName(k));
    rocks.CrashAndStart(static_cast<std::uint32_t>(k % 3));
    if (::testing::Test::HasFatalFailure()) {
      FAIL() << when;
    }
    client.Check(when);
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
