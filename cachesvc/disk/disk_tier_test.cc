// What a planned stop left, and to whom it is told.
#include "cachesvc/disk/disk_tier.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::Fingerprint;
using testing::MakeSession;
using testing::PromptIds;

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierTest() : staging_(2 * kIoBytes) {
    std::string pattern = ::testing::TempDir() + "disk_XXXXXX";
    base_ = mkdtemp(pattern.data());
    DiskOptions options;
    options.folder = base_ + "/cache";
    options.limits.free_floor_bytes = 0;
    options.io = IoPoolKind::kThreads;
    auto tier = DiskTier::Open(options, staging_.span());
    EXPECT_TRUE(tier.ok()) << tier.status();
    if (tier.ok()) tier_ = *std::move(tier);
    const auto written = tier_->store().WriteManifest(
        MakeSession(PromptIds(512, 1, 700), "s")->write);
    EXPECT_TRUE(written.ok()) << written.status();
    if (written.ok()) session_ = written->file_key;
  }
  ~DiskTierTest() override {
    tier_.reset();
    std::filesystem::remove_all(base_);
  }
  // The planned stop of an engine that had the session resident.
  void Stop() {
    ASSERT_TRUE(tier_->Drained(model_).ok());
    ASSERT_TRUE(
        tier_->store().SetResidents(model_, std::span(&session_, 1)).ok());
  }
  std::size_t Told(std::uint32_t pid) {
    const auto residents = tier_->TakeResidents(
        model_, pid, std::chrono::steady_clock::now() + std::chrono::hours(1));
    EXPECT_TRUE(residents.ok()) << residents.status();
    return residents.ok() ? residents->size() : 0;
  }

  const Sha256Digest model_ = Fingerprint("model");
  AlignedBuffer staging_;
  std::string base_;
  std::unique_ptr<DiskTier> tier_;
  FileKey session_{};
};

TEST_F(DiskTierTest, AnEngineThatAttachesAgainIsToldStill) {
  Stop();
  tier_->Attached(model_, 10);
  tier_->Attached(model_, 10);
  EXPECT_EQ(Told(10), 1u);
  EXPECT_EQ(Told(10), 0u);
  // And after its own stop the next one.
  Stop();
  tier_->Attached(model_, 11);
  EXPECT_EQ(Told(11), 1u);
}

// It takes longer than one call may.
TEST_F(DiskTierTest, OneThatAsksAgainIsToldTheRest) {
  const auto late = [&](std::uint32_t pid) {
    return tier_->TakeResidents(model_, pid, std::chrono::steady_clock::now())
        .status()
        .code();
  };
  Stop();
  tier_->Attached(model_, 10);
  EXPECT_EQ(late(10), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late(10), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Told(10), 1u);
  EXPECT_EQ(Told(10), 0u);
  // Not another one, and what it left is nobody's then.
  Stop();
  tier_->Attached(model_, 11);
  EXPECT_EQ(late(11), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Told(12), 0u);
  EXPECT_EQ(Told(11), 0u);
}

TEST_F(DiskTierTest, AThirdIsNotTold) {
  Stop();
  tier_->Attached(model_, 10);
  tier_->Attached(Fingerprint("another"), 12);
  tier_->Attached(model_, 11);
  EXPECT_EQ(Told(11), 0u);
  EXPECT_EQ(Told(10), 0u);
}

TEST_F(DiskTierTest, AStopThatLeavesNothingLeavesNothingOlder) {
  Stop();
  tier_->Attached(model_, 10);
  ASSERT_TRUE(tier_->Drained(model_).ok());
  tier_->Attached(model_, 11);
  EXPECT_EQ(Told(11), 0u);
}

}  // namespace
}  // namespace holdfast::cachesvc
