#include "cachesvc/disk/cost_book.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/disk/drive_speed.h"
#include "cachesvc/index/testing/fake_index.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

constexpr Sha256Digest kModel{1};
constexpr Sha256Digest kOther{2};

TEST(CostBookTest, RatesOutliveTheService) {
  holdfast::testing::FaultPoint faults;
  testing::FakeIndex index(faults);
  {
    CostBook book(&index);
    EXPECT_EQ(book.Get(kModel), MeasuredRates());
    book.Put(kModel, {100, {0, 2000, 0}});
    // What was not measured this time stays as it was.
    book.Put(kModel, {0, {3000, 0, 0}});
  }
  CostBook book(&index);
  EXPECT_EQ(book.Get(kModel), (MeasuredRates{100, {3000, 2000, 0}}));
  EXPECT_EQ(book.Get(kOther), MeasuredRates());
}

TEST(CostBookTest, SmallChangesAreNotWritten) {
  holdfast::testing::FaultPoint faults;
  testing::FakeIndex index(faults);
  {
    CostBook book(&index);
    book.Put(kModel, {100, {}});
    book.Put(kModel, {105, {}});
    EXPECT_EQ(book.Get(kModel).prefill_tokens_per_s, 105);
  }
  {
    CostBook book(&index);
    EXPECT_EQ(book.Get(kModel).prefill_tokens_per_s, 100);
    book.Put(kModel, {120, {}});
  }
  EXPECT_EQ(CostBook(&index).Get(kModel).prefill_tokens_per_s, 120);
}

TEST(CostBookTest, WhatIsNoRateIsNotTaken) {
  holdfast::testing::FaultPoint faults;
  testing::FakeIndex index(faults);
  CostBook book(&index);
  const double infinity = std::numeric_limits<double>::infinity();
  book.Put(kModel,
           {-1, {infinity, std::numeric_limits<double>::quiet_NaN(), 0}});
  EXPECT_EQ(book.Get(kModel), MeasuredRates());
  IndexBatch batch;
  batch.Put(Table::kMeta, "costs." + ToHex(kOther), "short");
  ASSERT_TRUE(index.Write(batch, Durability::kSynced).ok());
  EXPECT_EQ(book.Get(kOther), MeasuredRates());
}

TEST(CostBookTest, ADriveStandsInForWhatWasNotMeasured) {
  holdfast::testing::FaultPoint faults;
  testing::FakeIndex index(faults);
  {
    CostBook book(&index);
    EXPECT_EQ(book.drive(), 0);
    book.PutDrive(0);
    EXPECT_EQ(book.drive(), 0);
    book.PutDrive(500);
    book.Put(kModel, {0, {0, 2000, 0}});
  }
  CostBook book(&index);
  EXPECT_EQ(book.drive(), 500);
  EXPECT_EQ(book.Get(kModel), (MeasuredRates{0, {0, 2000, 500}}));
  EXPECT_EQ(book.Get(kOther), (MeasuredRates{0, {0, 500, 500}}));
}

TEST(CostBookTest, TheDrivesSpeedIsOfAFileThatGoes) {
  std::string folder = ::testing::TempDir() + "driveXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto pool = MakeIoPool({.kind = IoPoolKind::kThreads, .depth = 2});
  ASSERT_TRUE(pool.ok());
  const auto rate = MeasureDriveRead(RealFileSystem(), **pool, folder);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
  EXPECT_FALSE(MeasureDriveRead(RealFileSystem(), **pool, folder).ok());
}

// An index in which a call takes as long as another one needs.
class SlowIndex final : public Index {
 public:
  std::function<void()> meanwhile;  // of the next call

  absl::Status Write(const IndexBatch& batch, Durability durability) override {
    Wait();
    return index_.Write(batch, durability);
  }
  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) override {
    Wait();
    return index_.Get(table, key);
  }
  absl::StatusOr<std::vector<std::optional<std::string>>> GetMany(
      Table table, std::span<const std::string> keys) override {
    return index_.GetMany(table, keys);
  }
  absl::Status Scan(
      Table table,
      const std::function<bool(std::string_view, std::string_view)>& visit)
      override {
    return index_.Scan(table, visit);
  }
  std::uint64_t DiskBytes() override { return 0; }

 private:
  void Wait() {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
  }

  holdfast::testing::FaultPoint faults_;
  testing::FakeIndex index_{faults_};
};

TEST(CostBookTest, ASlowIndexHoldsUpNoOtherLookup) {
  SlowIndex index;
  CostBook book(&index);
  book.Put(kModel, {100, {}});
  MeasuredRates seen;
  const auto look = [&] {
    auto other =
        std::async(std::launch::async, [&book] { return book.Get(kModel); });
    ASSERT_EQ(other.wait_for(std::chrono::seconds(60)),
              std::future_status::ready);
    seen = other.get();
  };
  index.meanwhile = look;
  book.Put(kModel, {200, {}});
  EXPECT_EQ(seen.prefill_tokens_per_s, 200);
  index.meanwhile = look;
  seen = {};
  EXPECT_EQ(book.Get(kOther), MeasuredRates());
  EXPECT_EQ(seen.prefill_tokens_per_s, 200);
}

TEST(CostBookTest, WithoutAFolderInMemory) {
  CostBook book(nullptr);
  book.Put(kModel, {100, {}});
  EXPECT_EQ(book.Get(kModel).prefill_tokens_per_s, 100);
}

}  // namespace
}  // namespace holdfast::cachesvc
