#include "fmt/format.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/format/cache_file.h"
#include "cachesvc/format/meta.h"
#include "cachesvc/format/names.h"
#include "cachesvc/format/testing/sample_files.h"
#include "cachesvc/io/io_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/fs/testing/fake_file_system.h"

namespace holdfast::cachesvc {
namespace {

using testing::AllSamples;
using testing::FileBytes;
using ::testing::HasSubstr;
using testing::SampleFile;

Deadline Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

std::vector<std::byte> ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// What a reader of the whole file says of it.
absl::Status Check(std::span<const std::byte> bytes) {
  const auto size = MetaBytes(bytes);
  if (!size.ok()) return size.status();
  if (*size > bytes.size()) return absl::DataLossError("too short");
  const auto meta = DecodeMeta(bytes.first(*size), bytes.size());
  if (!meta.ok()) return meta.status();
  const std::span<const std::byte> parts[] = {bytes.subspan(*size)};
  if (PieceCrcs(parts) != meta->piece_crcs) return absl::DataLossError("sums");
  return absl::OkStatus();
}

TEST(Crc32cTest, IsCastagnolis) {
  const char digits[] = "123456789";
  const auto bytes = std::as_bytes(std::span(digits, 9));
  EXPECT_EQ(Crc32c(bytes), 0xe3069283u);
  EXPECT_EQ(Crc32c(bytes.subspan(4), Crc32c(bytes.first(4))), 0xe3069283u);
}

TEST(Crc32cTest, PiecesGoOverParts) {
  const std::vector<std::byte> bytes(3 * format::kCrcPiece / 2, std::byte{5});
  const std::span<const std::byte> whole(bytes);
  const std::span<const std::byte> one[] = {whole};
  const std::span<const std::byte> two[] = {whole.first(5000),
                                            whole.subspan(5000)};
  EXPECT_EQ(PieceCrcs(one), PieceCrcs(two));
  ASSERT_EQ(PieceCrcs(one).size(), 2u);
  EXPECT_EQ(PieceCrcs(one)[1], Crc32c(whole.subspan(format::kCrcPiece)));
}

TEST(FormatTest, GoldenFilesAreWhatIsWrittenToday) {
  for (SampleFile& sample : AllSamples()) {
    const std::string path =
        fmt::format("tests/golden/cache/{}.bin", sample.name);
    const auto golden = ReadAll(path);
    ASSERT_FALSE(golden.empty()) << path;
    EXPECT_TRUE(golden == FileBytes(sample)) << path;
    EXPECT_TRUE(Check(golden).ok()) << Check(golden);
  }
}

TEST(FormatTest, EveryFieldComesBack) {
  SampleFile sample = testing::SampleSession();
  const AlignedBuffer bytes = EncodeMeta(sample.meta);
  const auto read = DecodeMeta(bytes.span(), sample.meta.file_bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kind, FileKind::kSession);
  EXPECT_EQ(read->file_key, sample.meta.file_key);
  EXPECT_EQ(read->fingerprint, sample.meta.fingerprint);
  EXPECT_EQ(read->prefix_key, sample.meta.prefix_key);
  EXPECT_EQ(read->parent_key, sample.meta.parent_key);
  EXPECT_EQ(read->end_position, 300u);
  EXPECT_EQ(read->taint, 290u);
  EXPECT_EQ(read->key_ids, sample.meta.key_ids);
  EXPECT_EQ(read->session_id, sample.meta.session_id);
  EXPECT_EQ(read->sequence, 7u);
  EXPECT_EQ(read->session_key, "opencode:ses_42");
  EXPECT_EQ(read->record, sample.meta.record);
  ASSERT_EQ(read->layout.views.size(), 2u);
  EXPECT_EQ(read->layout.views[0].name, "K");
  EXPECT_EQ(read->layout.views[0].parts, 2u);
  EXPECT_EQ(read->layout.views[1].bytes_per_token, 4u);
  ASSERT_EQ(read->layout.sections.size(), 2u);
  EXPECT_EQ(read->layout.sections[1].name, "gdn.S");
  EXPECT_EQ(read->layout.sections[1].bytes, 40u);
  ASSERT_EQ(read->states.size(), 2u);
  EXPECT_EQ(read->states[0].kind, StateKind::kEnd);
  EXPECT_EQ(read->states[1].payload_offset, StateBytes(read->layout));
  ASSERT_EQ(read->chunks.size(), 2u);
  EXPECT_EQ(read->chunks[1].end_position, 300u);
  EXPECT_EQ(read->chunks[0].file_key, testing::SampleChunk().meta.file_key);
}

TEST(FormatTest, EveryFlippedBitIsSeen) {
  for (SampleFile& sample : AllSamples()) {
    std::vector<std::byte> bytes = FileBytes(sample);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      const std::byte mask = std::byte{1} << (bit % 8);
      bytes[bit / 8] ^= mask;
      ASSERT_FALSE(Check(bytes).ok()) << sample.name << " bit " << bit;
      bytes[bit / 8] ^= mask;
    }
  }
}

TEST(FormatTest, OtherSizesAreSeen) {
  for (SampleFile& sample : AllSamples()) {
    std::vector<std::byte> bytes = FileBytes(sample);
    bytes.resize(bytes.size() + format::kPadding);
    EXPECT_FALSE(Check(bytes).ok()) << sample.name;
    bytes.resize(bytes.size() - 2 * format::kPadding);
    EXPECT_FALSE(Check(bytes).ok()) << sample.name;
    bytes.resize(100);
    EXPECT_FALSE(Check(bytes).ok()) << sample.name;
  }
}

// Sums that are right prove nothing about the rest: a reader must survive any
// tables.
TEST(FormatTest, AnyTablesWithRightSumsAreSurvived) {
  std::mt19937 random(7);
  int refused = 0;
  for (SampleFile& sample : AllSamples()) {
    const std::vector<std::byte> original = FileBytes(sample);
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::byte> bytes = original;
      for (int i = 0; i < 1 + round % 3; ++i) {
        const std::size_t at = 8 + random() % 1000;
        bytes[at] = static_cast<std::byte>(random());
      }
      format::Header header;
      std::memcpy(&header, bytes.data(), sizeof(header));
      header.meta_bytes = sample.meta.meta_bytes;
      header.meta_crc32c =
          Crc32c(std::span(bytes).subspan(256, sample.meta.meta_bytes - 256));
      header.header_crc32c = Crc32c(
          std::as_bytes(std::span(&header, 1)).first(sizeof(header) - 4));
      std::memcpy(bytes.data(), &header, sizeof(header));
      refused += !Check(bytes).ok();
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(NamesTest, ParseWhatTheyMake) {
  const FileKey key = testing::SampleChunk().meta.file_key;
  for (const FileKind kind : kAllKinds) {
    const std::string name = FileName(kind, key);
    EXPECT_EQ(ParseFileName(kind, name), key);
    EXPECT_FALSE(ParseFileName(kind, name + "x"));
    EXPECT_FALSE(ParseFileName(kind, "A" + name.substr(1)));
    EXPECT_FALSE(ParseFileName(kind, ""));
  }
  EXPECT_FALSE(
      ParseFileName(FileKind::kChunk, FileName(FileKind::kAnchor, key)));
}

TEST(NamesTest, SumsCountForSessionChunksOnly) {
  const PrefixKey key{};
  const std::vector<ContentSum> a = {{1, 2}}, b = {{1, 3}};
  EXPECT_EQ(ChunkFileKey(key, Provenance::kGrid, a),
            ChunkFileKey(key, Provenance::kGrid, b));
  EXPECT_NE(ChunkFileKey(key, Provenance::kSession, a),
            ChunkFileKey(key, Provenance::kSession, b));
  EXPECT_NE(ChunkFileKey(key, Provenance::kGrid, a),
            ChunkFileKey(key, Provenance::kSession, a));
}

class CacheFileTest : public ::testing::Test {
 protected:
  CacheFileTest()
      : fs_(faults_),
        pool_(*MakeIoPool({.kind = IoPoolKind::kThreads, .depth = 1})) {
    EXPECT_TRUE(fs_.MakeDirectory("/d").ok());
    faults_.Clear();
  }

  absl::Status Write(SampleFile& sample) {
    const auto half =
        sample.payload.size() / 2 / format::kPadding * format::kPadding;
    const std::span<const std::byte> parts[] = {
        sample.payload.span().first(half), sample.payload.span().subspan(half)};
    return WriteCacheFile(fs_, *pool_, "/d/a", sample.meta, parts, nullptr,
                          Soon());
  }
  absl::StatusOr<CacheFile> Open(std::uint64_t meta_bytes) {
    return OpenCacheFile(fs_, *pool_, "/d/a", meta_bytes,
                         fs_.Content("/d/a").size(), Soon());
  }

  holdfast::testing::FaultPoint faults_;
  holdfast::testing::FakeFileSystem fs_;
  std::unique_ptr<IoPool> pool_;
};

TEST_F(CacheFileTest, IsWrittenAndReadBack) {
  SampleFile sample = testing::SampleSession();
  ASSERT_TRUE(Write(sample).ok());
  EXPECT_TRUE(fs_.Content("/d/a") == FileBytes(sample));
  for (const std::uint64_t hint : {std::uint64_t{0}, sample.meta.meta_bytes}) {
    const auto file = Open(hint);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(VerifyPayload(*pool_, *file, Soon()).ok());
  }
}

TEST_F(CacheFileTest, IsDurableBeforeItsName) {
  SampleFile sample = testing::SampleChunk();
  ASSERT_TRUE(Write(sample).ok());
  ASSERT_TRUE(fs_.SyncDirectory("/d").ok());
  fs_.Reboot(0);
  faults_.Clear();
  EXPECT_TRUE(fs_.Content("/d/a") == FileBytes(sample));
}

TEST_F(CacheFileTest, ShortWritesGoOn) {
  SampleFile sample = testing::SampleSession();
  for (int k = 0; k < 8; ++k) {
    faults_.ShortAt(k);
    ASSERT_TRUE(Write(sample).ok() || pool_->stats().failed > 0) << k;
    if (pool_->stats().resubmitted > 0) {
      EXPECT_TRUE(fs_.Content("/d/a") == FileBytes(sample));
      return;
    }
    ASSERT_TRUE(fs_.Unlink("/d/a").ok());
  }
  FAIL() << "no write was short";
}

TEST_F(CacheFileTest, EveryFailedCallIsAnError) {
  SampleFile sample = testing::SampleAnchor();
  faults_.Clear();
  ASSERT_TRUE(Write(sample).ok());
  const auto calls = faults_.calls();
  ASSERT_GE(calls, 5);
  for (std::int64_t k = 0; k < calls; ++k) {
    faults_.Clear();
    (void)fs_.Unlink("/d/a");
    faults_.FailAt(k, ENOSPC);
    EXPECT_EQ(Write(sample).code(), absl::StatusCode::kResourceExhausted) << k;
  }
}

TEST_F(CacheFileTest, DamageNamesTheFileAndThePiece) {
  SampleFile sample = testing::SampleChunk();
  ASSERT_TRUE(Write(sample).ok());
  fs_.FlipBit("/d/a", 8 * sample.meta.meta_bytes);
  const auto file = Open(0);
  ASSERT_TRUE(file.ok());
  const auto status = VerifyPayload(*pool_, *file, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/d/a"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB 0"));
  fs_.FlipBit("/d/a", 8 * 300);
  EXPECT_EQ(Open(0).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenCacheFile(fs_, *pool_, "/d/none", 0, 0, Soon()).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace holdfast::cachesvc
