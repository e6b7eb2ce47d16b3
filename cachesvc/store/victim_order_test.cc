// The order against a look at every file, over random histories.
#include "cachesvc/store/victim_order.h"

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cachesvc/store/catalog.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

Sha256Digest Key(const std::string& name) {
  return Sha256().Update(name).Finish();
}

std::string Name(char letter, std::uint64_t number) {
  return letter + std::to_string(number);
}

// What the design says of an anchor, at any moment.
double Value(std::uint64_t hits, std::uint64_t tokens, std::uint64_t bytes,
             std::uint64_t last_used_s, std::uint64_t now_s) {
  return (static_cast<double>(hits) + 1) * static_cast<double>(tokens) /
         static_cast<double>(bytes) *
         std::exp2(-static_cast<double>(now_s - last_used_s) / 86400);
}

TEST(AnchorWorthTest, IsTheLogarithmOfTheValueUpToTheTime) {
  for (const std::uint64_t now : {1'000'000, 5'000'000}) {
    const auto off = [&](std::uint64_t hits, std::uint64_t tokens,
                         std::uint64_t bytes, std::uint64_t used) {
      return AnchorWorth(hits, tokens, bytes, used) -
             std::log2(Value(hits, tokens, bytes, used, now));
    };
    const double time = off(0, 1024, 1000, 1'000'000);
    EXPECT_NEAR(off(7, 1024, 1000, 1'000'000), time, 1e-9);
    EXPECT_NEAR(off(0, 9216, 1000, 1'000'000), time, 1e-9);
    EXPECT_NEAR(off(0, 1024, 77777, 1'000'000), time, 1e-9);
    EXPECT_NEAR(off(0, 1024, 1000, 300'000), time, 1e-9);
  }
}

// A catalog, and the same files in a list of the test's own.
class Twin {
 public:
  explicit Twin(std::uint32_t seed) : random_(seed) {
    for (int i = 0; i < 12; ++i) {
      ChunkRow row;
      row.file_key = Key(Name('c', i));
      row.file_bytes = 100 + 37 * i;
      EXPECT_TRUE(catalog_.AddChunk(row));
      // Held as by a write under way: they outlive their manifests here.
      catalog_.Pend(std::span(&row.file_key, 1));
    }
  }

  void Step() {
    now_ += Below(40'000);
    switch (Below(6)) {
      case 0:
      case 1:
        return Add();
      case 2:
        return Remove();
      case 3:
        return Pin();
      default:
        return Use();
    }
  }

  void Compare() {
    for (const FileKind kind : {FileKind::kAnchor, FileKind::kSession}) {
      for (const char* model : {"m0", "m1", "none"}) {
        const auto chosen = catalog_.Victim(kind, Key(model), Busy());
        CompareOne(kind, Key(model), chosen);
      }
      CompareOne(kind, std::nullopt,
                 catalog_.Victim(kind, std::nullopt, Busy()));
      std::uint64_t pinned = 0;
      catalog_.ForEachManifest([&](const CatalogManifest& m) {
        pinned += m.pinned && m.row.kind == kind;
      });
      EXPECT_EQ(catalog_.PinnedBytes(kind) > 0, pinned > 0);
    }
  }

 private:
  std::uint64_t Below(std::uint64_t most) { return random_() % most; }

  std::function<bool(const FileKey&)> Busy() const {
    return [](const FileKey& key) { return key[0] % 8 == 0; };
  }

  // Every file is looked at; nothing is better than what was chosen.
  void CompareOne(FileKind kind, const std::optional<Sha256Digest>& attached,
                  const std::optional<FileKey>& chosen) {
    const CatalogManifest* best = nullptr;
    catalog_.ForEachManifest([&](const CatalogManifest& m) {
      if (m.row.kind != kind || m.pinned || Busy()(m.row.file_key)) return;
      if (best == nullptr || Before(m, *best, attached)) best = &m;
    });
    ASSERT_EQ(chosen.has_value(), best != nullptr);
    if (best == nullptr || *chosen == best->row.file_key) return;
    // Equal but for the last bits of a logarithm.
    const CatalogManifest& other = *catalog_.FindManifest(*chosen);
    ASSERT_EQ(kind, FileKind::kAnchor);
    ASSERT_TRUE(other.row.fingerprint == attached);
    EXPECT_NEAR(ValueOf(other) / ValueOf(*best), 1, 1e-9);
  }

  bool Before(const CatalogManifest& a, const CatalogManifest& b,
              const std::optional<Sha256Digest>& attached) {
    const bool foreign_a = a.row.fingerprint != attached;
    const bool foreign_b = b.row.fingerprint != attached;
    if (foreign_a != foreign_b) return foreign_a;
    if (foreign_a || a.row.kind == FileKind::kSession) {
      return std::pair(a.last_used_s, a.row.file_key) <
             std::pair(b.last_used_s, b.row.file_key);
    }
    return std::pair(ValueOf(a), a.row.file_key) <
           std::pair(ValueOf(b), b.row.file_key);
  }

  double ValueOf(const CatalogManifest& m) {
    std::uint64_t bytes = m.row.file_bytes;
    for (const FileKey& key : m.row.chunks) {
      const CatalogChunk& chunk = *catalog_.FindChunk(key);
      if (chunk.users.size() == 1) bytes += chunk.row.file_bytes;
    }
    return Value(m.hits, m.row.end_position, bytes, m.last_used_s, now_);
  }

  void Add() {
    ManifestRow row;
    row.kind = Below(2) == 0 ? FileKind::kAnchor : FileKind::kSession;
    row.file_key = Key(Name('f', number_++));
    row.fingerprint = Key(Name('m', Below(3)));
    row.file_bytes = 10 + Below(500);
    row.grid_tokens = 1024;
    row.created_s = now_;
    const std::uint64_t chunks = 1 + Below(6);
    const std::uint64_t first = Below(12 - chunks + 1);
    for (std::uint64_t i = first; i < first + chunks; ++i) {
      row.chunks.push_back(Key(Name('c', i)));
    }
    row.end_position = 1024 * chunks;
    row.session_id = Key(Name('s', Below(4)));
    EXPECT_TRUE(catalog_.AddManifest(row, Below(3), now_, Below(8) == 0));
    keys_.push_back(row.file_key);
  }
  void Remove() {
    if (keys_.empty()) return;
    const std::size_t i = Below(keys_.size());
    EXPECT_EQ(catalog_.RemoveManifest(keys_[i]).size(), 1u);
    keys_[i] = keys_.back();
    keys_.pop_back();
  }
  void Pin() {
    if (keys_.empty()) return;
    catalog_.SetPinned(keys_[Below(keys_.size())], Below(3) == 0);
  }
  void Use() {
    if (keys_.empty()) return;
    catalog_.Touch(keys_[Below(keys_.size())], now_);
  }

  std::mt19937 random_;
  Catalog catalog_;
  std::vector<FileKey> keys_;
  std::uint64_t number_ = 0;
  std::uint64_t now_ = 1'000'000;
};

TEST(VictimOrderTest, ChoosesWhatAScanWouldChoose) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Twin twin(seed);
    for (int step = 0; step < 120; ++step) {
      twin.Step();
      twin.Compare();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
