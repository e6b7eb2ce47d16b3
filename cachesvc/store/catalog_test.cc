#include "cachesvc/store/catalog.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::UnorderedElementsAre;

Sha256Digest Key(const std::string& name) {
  return Sha256().Update(name).Finish();
}

const Sha256Digest kOurs = Key("ours");
const Sha256Digest kTheirs = Key("theirs");

ChunkRow Chunk(const std::string& name, std::uint64_t bytes) {
  ChunkRow row;
  row.file_key = Key(name);
  row.fingerprint = kOurs;
  row.file_bytes = bytes;
  return row;
}

ManifestRow Manifest(FileKind kind, const std::string& name,
                     const std::vector<std::string>& chunks,
                     std::uint64_t bytes = 10) {
  ManifestRow row;
  row.kind = kind;
  row.file_key = Key(name);
  row.fingerprint = kOurs;
  row.file_bytes = bytes;
  row.state_bytes = bytes;
  row.grid_tokens = 1024;
  row.end_position = 1024 * chunks.size();
  for (const std::string& chunk : chunks) row.chunks.push_back(Key(chunk));
  row.states = {{row.end_position,
                 StateKind::kLine,
                 Provenance::kGrid,
                 Key("line of " + name),
                 {}}};
  row.session_id = Key("session of " + name);
  row.sequence = 1;
  return row;
}

std::vector<FileKey> Keys(const std::vector<DroppedFile>& files) {
  std::vector<FileKey> keys;
  for (const DroppedFile& file : files) keys.push_back(file.file_key);
  return keys;
}

class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() {
    EXPECT_TRUE(catalog_.AddChunk(Chunk("a", 100)));
    EXPECT_TRUE(catalog_.AddChunk(Chunk("b", 200)));
    EXPECT_TRUE(catalog_.AddChunk(Chunk("c", 400)));
  }
  Catalog catalog_;
};

TEST_F(CatalogTest, ASharedChunkIsChargedOnceToTheDiskTierWhileAnAnchorUsesIt) {
  EXPECT_TRUE(catalog_.AddManifest(
      Manifest(FileKind::kSession, "s", {"a", "b", "c"}), 0, 0, false));
  EXPECT_EQ(catalog_.disk_bytes(), 0u);
  EXPECT_EQ(catalog_.spill_bytes(), 710u);
  const FileKey both[] = {Key("a"), Key("b")};
  EXPECT_EQ(catalog_.MovingBytes(both), 300u);
  EXPECT_TRUE(catalog_.AddManifest(Manifest(FileKind::kAnchor, "n", {"a", "b"}),
                                   0, 0, false));
  EXPECT_EQ(catalog_.disk_bytes(), 310u);
  EXPECT_EQ(catalog_.spill_bytes(), 410u);
  EXPECT_EQ(catalog_.MovingBytes(both), 0u);
  EXPECT_THAT(Keys(catalog_.RemoveManifest(Key("n"))),
              UnorderedElementsAre(Key("n")));
  EXPECT_EQ(catalog_.disk_bytes(), 0u);
  EXPECT_EQ(catalog_.spill_bytes(), 710u);
  EXPECT_THAT(Keys(catalog_.RemoveManifest(Key("s"))),
              UnorderedElementsAre(Key("s"), Key("a"), Key("b"), Key("c")));
  EXPECT_EQ(catalog_.spill_bytes(), 0u);
  EXPECT_EQ(catalog_.chunks(), 0u);
}

TEST_F(CatalogTest, AManifestNeedsAllItsChunksAndIsThereOnce) {
  EXPECT_FALSE(catalog_.AddManifest(
      Manifest(FileKind::kAnchor, "n", {"a", "none"}), 0, 0, false));
  EXPECT_EQ(catalog_.disk_bytes(), 0u);
  const auto row = Manifest(FileKind::kAnchor, "n", {"a"});
  EXPECT_TRUE(catalog_.AddManifest(row, 0, 0, false));
  EXPECT_FALSE(catalog_.AddManifest(row, 0, 0, false));
  EXPECT_FALSE(catalog_.AddChunk(Chunk("a", 5)));
  EXPECT_EQ(catalog_.disk_bytes(), 110u);
}

TEST_F(CatalogTest, ABadChunkTakesEveryManifestThatNeedsIt) {
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "1", {"a"}), 0, 0, false);
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "2", {"a", "b"}), 0, 0,
                       false);
  catalog_.AddManifest(Manifest(FileKind::kSession, "3", {"a", "b", "c"}), 0, 0,
                       false);
  EXPECT_THAT(Keys(catalog_.RemoveChunk(Key("b"))),
              UnorderedElementsAre(Key("2"), Key("3"), Key("b"), Key("c")));
  EXPECT_NE(catalog_.FindManifest(Key("1")), nullptr);
  EXPECT_EQ(catalog_.disk_bytes(), 110u);
  EXPECT_EQ(catalog_.spill_bytes(), 0u);
  EXPECT_TRUE(catalog_.RemoveChunk(Key("b")).empty());
}

TEST_F(CatalogTest, PendingChunksStay) {
  const FileKey pended[] = {Key("a"), Key("none")};
  catalog_.Pend(pended);
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "1", {"a", "b"}), 0, 0,
                       false);
  EXPECT_THAT(Keys(catalog_.RemoveManifest(Key("1"))),
              UnorderedElementsAre(Key("1"), Key("b")));
  EXPECT_THAT(Keys(catalog_.RemoveUnreferenced()),
              UnorderedElementsAre(Key("c")));
  EXPECT_THAT(Keys(catalog_.Unpend(pended)), UnorderedElementsAre(Key("a")));
  EXPECT_TRUE(catalog_.Unpend(pended).empty());
  EXPECT_EQ(catalog_.spill_bytes() + catalog_.disk_bytes(), 0u);
}

TEST_F(CatalogTest, TheVictimIsTheLeastValuableThatIsNotPinned) {
  // "1" needs 210 bytes of its own for 2,048 tokens, "2" only its file for
  // 1,024: a shared chunk costs nobody.
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "1", {"a", "b"}), 0, 50,
                       false);
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "2", {"a"}), 0, 50, false);
  EXPECT_EQ(catalog_.Victim(FileKind::kAnchor, kOurs), Key("1"));
  for (int i = 0; i < 30; ++i) catalog_.Touch(Key("1"), 70);
  EXPECT_EQ(catalog_.Victim(FileKind::kAnchor, kOurs), Key("2"));
  EXPECT_EQ(catalog_.FindManifest(Key("1"))->hits, 30u);
  EXPECT_EQ(catalog_.FindManifest(Key("1"))->last_used_s, 70u);
  catalog_.SetPinned(Key("2"), true);
  EXPECT_EQ(catalog_.Victim(FileKind::kAnchor, kOurs), Key("1"));
  EXPECT_EQ(catalog_.PinnedBytes(FileKind::kAnchor), 110u);
  catalog_.SetPinned(Key("1"), true);
  EXPECT_EQ(catalog_.PinnedBytes(FileKind::kAnchor), 320u);
  EXPECT_FALSE(catalog_.Victim(FileKind::kAnchor, kOurs));
  EXPECT_FALSE(catalog_.Victim(FileKind::kSession, kOurs));
}

TEST_F(CatalogTest, ForeignFilesGoFirstAndSessionsByLastUse) {
  auto foreign = Manifest(FileKind::kAnchor, "foreign", {"a"});
  foreign.fingerprint = kTheirs;
  catalog_.AddManifest(Manifest(FileKind::kAnchor, "1", {"a"}), 0, 0, false);
  catalog_.AddManifest(foreign, 1000, 1000, false);
  EXPECT_EQ(catalog_.Victim(FileKind::kAnchor, kOurs), Key("foreign"));
  EXPECT_EQ(catalog_.Victim(FileKind::kAnchor, kTheirs), Key("1"));
  catalog_.AddManifest(Manifest(FileKind::kSession, "s1", {"b"}), 90, 20,
                       false);
  catalog_.AddManifest(Manifest(FileKind::kSession, "s2", {"c"}), 0, 30, false);
  EXPECT_EQ(catalog_.Victim(FileKind::kSession, kOurs), Key("s1"));
}

TEST_F(CatalogTest, LookupFindsTheDeepestFirst) {
  auto shallow = Manifest(FileKind::kAnchor, "1", {"a"});
  auto deep = Manifest(FileKind::kAnchor, "2", {"a", "b"});
  auto session = Manifest(FileKind::kSession, "s", {"a", "b"});
  session.end_position = 1024 + 300;
  session.states = {{1324, StateKind::kEnd, Provenance::kSession,
                     Key("block 5"), std::vector<KeyId>(44, 9)}};
  session.taint = 1300;
  for (const auto& row : {shallow, deep, session}) {
    EXPECT_TRUE(catalog_.AddManifest(row, 0, 0, false));
  }
  // Blocks 1 to 8 of a prompt.
  std::vector<PrefixKey> blocks;
  for (int i = 1; i <= 8; ++i)
    blocks.push_back(Key("block " + std::to_string(i)));
  blocks[3] = Key("line of 1");
  blocks[7] = Key("line of 2");
  LookupRequest request{kOurs, Key("root"), blocks, 64};
  const auto found = catalog_.Lookup(request);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].file_key, Key("2"));
  EXPECT_EQ(found[0].position, 2048u);
  EXPECT_EQ(found[0].bytes, 310u);
  EXPECT_EQ(found[1].file_key, Key("s"));
  EXPECT_EQ(found[1].tail.size(), 44u);
  EXPECT_EQ(found[1].taint, 1300u);
  EXPECT_EQ(found[1].provenance, Provenance::kSession);
  EXPECT_EQ(found[2].bytes, 110u);
  request.most = 1;
  EXPECT_EQ(catalog_.Lookup(request).size(), 1u);
  request.fingerprint = kTheirs;
  EXPECT_TRUE(catalog_.Lookup(request).empty());
  // The same key at another depth is no candidate.
  std::swap(blocks[7], blocks[6]);
  request = {kOurs, Key("root"), blocks, 64};
  EXPECT_EQ(catalog_.Lookup(request).size(), 2u);
}

TEST_F(CatalogTest, SessionsAreNumbered) {
  EXPECT_EQ(catalog_.NextSequence(Key("session of s")), 1u);
  auto row = Manifest(FileKind::kSession, "s", {"a"});
  row.sequence = 4;
  catalog_.AddManifest(row, 0, 0, false);
  EXPECT_EQ(catalog_.NextSequence(Key("session of s")), 5u);
  EXPECT_EQ(catalog_.NewestSession(Key("session of s")), Key("s"));
  catalog_.RemoveManifest(Key("s"));
  EXPECT_FALSE(catalog_.NewestSession(Key("session of s")));
}

}  // namespace
}  // namespace holdfast::cachesvc
