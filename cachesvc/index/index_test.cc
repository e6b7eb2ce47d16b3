#include "cachesvc/index/index.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/format/names.h"
#include "cachesvc/format/testing/sample_files.h"
#include "cachesvc/index/rocksdb_index.h"
#include "cachesvc/index/rows.h"
#include "cachesvc/index/testing/fake_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowsTest, ManifestsComeBackFromTheirFiles) {
  auto sample = testing::SampleSession();
  EncodeMeta(sample.meta);
  const ManifestRow row = ManifestRowOf(sample.meta, 77);
  const std::string key = RowKey(row.fingerprint, row.file_key);
  const auto read = DecodeManifestRow(key, EncodeRow(key, row));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, FileKind::kSession);
  EXPECT_EQ(read->file_key, sample.meta.file_key);
  EXPECT_EQ(read->end_position, 300u);
  EXPECT_EQ(read->taint, 290u);
  EXPECT_EQ(read->file_bytes, sample.meta.file_bytes());
  EXPECT_EQ(read->created_s, 77u);
  ASSERT_EQ(read->states.size(), 2u);
  EXPECT_EQ(read->states[0].tail.size(), 44u);
  EXPECT_EQ(read->states[0].tail[1], sample.meta.key_ids[257]);
  EXPECT_TRUE(read->states[1].tail.empty());
  ASSERT_EQ(read->chunks.size(), 2u);
  EXPECT_EQ(read->chunks[1], sample.meta.chunks[1].file_key);
  EXPECT_EQ(read->session_key, "opencode:ses_42");
  EXPECT_EQ(read->sequence, 7u);
}

TEST(RowsTest, EveryFlippedBitIsSeen) {
  auto sample = testing::SampleSession();
  const ManifestRow row = ManifestRowOf(sample.meta, 1);
  const std::string key = RowKey(row.fingerprint, row.file_key);
  std::string value = EncodeRow(key, row);
  for (std::size_t bit = 0; bit < 8 * value.size(); ++bit) {
    value[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(DecodeManifestRow(key, value)) << bit;
    value[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
  EXPECT_TRUE(DecodeManifestRow(key, value));
  EXPECT_FALSE(DecodeManifestRow(key + "x", value));
  EXPECT_FALSE(DecodeManifestRow(key, value.substr(0, 20)));
  EXPECT_FALSE(DecodeManifestRow(key, ""));
}

TEST(RowsTest, TombstonesNameTheirFile) {
  const FileKey key = testing::SampleChunk().meta.file_key;
  const auto parsed = ParseTombstoneKey(TombstoneKey(FileKind::kAnchor, key));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->kind, FileKind::kAnchor);
  EXPECT_EQ(parsed->file_key, key);
  EXPECT_FALSE(ParseTombstoneKey("short"));
}

LineRow MergedLines(const std::vector<LineRow>& rows) {
  std::string value;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string_view old = value;
    value = MergeRows(Table::kLines, "k", i == 0 ? nullptr : &old,
                      EncodeRow("k", rows[i]));
  }
  return *DecodeLineRow("k", value);
}

TEST(RowsTest, LinesMerge) {
  const LineRow same = MergedLines({{1, 5, false, 10}, {1, 5, false, 8}});
  EXPECT_EQ(same.count, 2u);
  EXPECT_FALSE(same.branched);
  EXPECT_EQ(same.last_seen_s, 10u);
  EXPECT_TRUE(MergedLines({{1, 5, false, 1}, {1, 6, false, 2}}).branched);
  // A prompt that ended at the line went on nowhere.
  EXPECT_FALSE(MergedLines({{1, 0, false, 1}, {1, 6, false, 2}}).branched);
  EXPECT_TRUE(
      MergedLines({{1, 0, false, 1}, {1, 6, false, 2}, {0, 7, false, 3}})
          .branched);
}

TEST(RowsTest, ADamagedSideOfAMergeIsLeftOut) {
  const std::string_view bad = "damaged";
  const auto row = DecodeHitRow(
      "k", MergeRows(Table::kHits, "k", &bad, EncodeRow("k", HitRow{3, 9})));
  ASSERT_TRUE(row);
  EXPECT_EQ(row->hits, 3u);
}

// The fake keeps the promises that the real one keeps.
class AnyIndexTest : public ::testing::TestWithParam<bool> {
 protected:
  AnyIndexTest() : fake_(faults_) {
    std::string pattern = ::testing::TempDir() + "index_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    Reopen();
  }
  ~AnyIndexTest() override {
    real_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Reopen() {
    if (!GetParam()) return;
    real_.reset();
    auto index = OpenRocksDbIndex({.folder = folder_ + "/index"});
    ASSERT_TRUE(index.ok()) << index.status();
    real_ = *std::move(index);
  }
  Index& index() { return GetParam() ? *real_ : fake_; }
  std::vector<std::string> Keys(Table table) {
    std::vector<std::string> keys;
    EXPECT_TRUE(index()
                    .Scan(table,
                          [&](std::string_view key, std::string_view) {
                            keys.emplace_back(key);
                            return keys.size() < 3;
                          })
                    .ok());
    return keys;
  }

  holdfast::testing::FaultPoint faults_;
  testing::FakeIndex fake_;
  std::string folder_;
  std::unique_ptr<Index> real_;
};

TEST_P(AnyIndexTest, PutsGetsAndDeletes) {
  IndexBatch batch;
  batch.Put(Table::kChunks, "b", "1");
  batch.Put(Table::kChunks, "a", std::string("\0x", 2));
  batch.Put(Table::kAnchors, "a", "other");
  ASSERT_TRUE(index().Write(batch, Durability::kSynced).ok());
  EXPECT_EQ(index().Get(Table::kChunks, "a")->value(), std::string("\0x", 2));
  EXPECT_FALSE(index().Get(Table::kSessions, "a")->has_value());
  const std::vector<std::string> keys = {"a", "none", "b"};
  const auto many = index().GetMany(Table::kChunks, keys);
  ASSERT_TRUE(many.ok());
  EXPECT_THAT(*many, ElementsAre(std::string("\0x", 2), std::nullopt, "1"));
  EXPECT_THAT(Keys(Table::kChunks), ElementsAre("a", "b"));
  IndexBatch second;
  second.Delete(Table::kChunks, "a");
  second.Put(Table::kChunks, "c", "3");
  second.Put(Table::kChunks, "d", "4");
  second.Put(Table::kChunks, "e", "5");
  ASSERT_TRUE(index().Write(second, Durability::kLazy).ok());
  EXPECT_THAT(Keys(Table::kChunks), ElementsAre("b", "c", "d"));
  Reopen();
  EXPECT_THAT(Keys(Table::kChunks), ElementsAre("b", "c", "d"));
}

TEST_P(AnyIndexTest, CountersMerge) {
  for (int i = 1; i <= 3; ++i) {
    IndexBatch batch;
    batch.Merge(Table::kHits, "k",
                EncodeRow("k", HitRow{2, static_cast<std::uint64_t>(10 * i)}));
    ASSERT_TRUE(index().Write(batch, Durability::kLazy).ok());
    if (i == 2) Reopen();
  }
  const auto row = DecodeHitRow("k", index().Get(Table::kHits, "k")->value());
  ASSERT_TRUE(row);
  EXPECT_EQ(row->hits, 6u);
  EXPECT_EQ(row->last_used_s, 30u);
}

INSTANTIATE_TEST_SUITE_P(RealAndFake, AnyIndexTest,
                         ::testing::Values(true, false), [](const auto& info) {
                           return info.param ? "RocksDb" : "Fake";
                         });

class RocksDbTest : public ::testing::Test {
 protected:
  RocksDbTest() {
    std::string pattern = ::testing::TempDir() + "rocks_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~RocksDbTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(RocksDbTest, ADamagedOneIsToldAndMovedAside) {
  const std::string path = folder_ + "/index";
  {
    auto index = OpenRocksDbIndex({.folder = path});
    ASSERT_TRUE(index.ok()) << index.status();
  }
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (name.rfind("MANIFEST", 0) != 0) continue;
    std::fstream file(entry.path(),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.write("damage", 6);
  }
  const auto opened = OpenRocksDbIndex({.folder = path});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(path));
  ASSERT_TRUE(MoveIndexAside(path).ok());
  EXPECT_TRUE(std::filesystem::exists(path + ".corrupt"));
  {
    const auto fresh = OpenRocksDbIndex({.folder = path});
    ASSERT_TRUE(fresh.ok());
    const std::uint64_t both = (*fresh)->DiskBytes();
    std::filesystem::remove_all(path + ".corrupt");
    EXPECT_LT((*fresh)->DiskBytes(), both);
    EXPECT_GT((*fresh)->DiskBytes(), 0u);
  }
  ASSERT_TRUE(MoveIndexAside(path).ok());
  EXPECT_TRUE(OpenRocksDbIndex({.folder = path}).ok());
  ASSERT_TRUE(MoveIndexAside(path).ok());  // replaces the older one
  EXPECT_FALSE(MoveIndexAside(path).ok());
}

TEST_F(RocksDbTest, IsOpenOnce) {
  const std::string path = folder_ + "/index";
  const auto first = OpenRocksDbIndex({.folder = path});
  ASSERT_TRUE(first.ok());
  const auto second = OpenRocksDbIndex({.folder = path});
  EXPECT_FALSE(second.ok());
  EXPECT_NE(second.status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace holdfast::cachesvc
