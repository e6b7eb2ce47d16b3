#include "engine/pool/block_pool.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "engine/pool/block_table.h"
#include "gtest/gtest.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

using Touch = BlockPool::Touch;
constexpr std::size_t kBytes = kBlockAlignment;

// A pool with memory, and a way to name blocks by one letter each: block "b"
// behind "a" holds 256 times the id 'b'.
class Pool {
 public:
  explicit Pool(int blocks)
      : memory_(AllocateAligned(blocks * kBytes)),
        pool(memory_.get(), kBytes, blocks) {}

  static std::vector<KeyId> Ids(char letter) {
    return std::vector<KeyId>(kBlockTokens, static_cast<KeyId>(letter));
  }
  static PrefixKey Key(const std::string& chain) {
    PrefixKey key = RootPrefixKey({}, "");
    for (char letter : chain) key = ChainPrefixKey(key, Ids(letter));
    return key;
  }
  BlockId Find(const std::string& chain) const {
    return pool.Find(Key(chain), Ids(chain.back()));
  }
  BlockId Publish(BlockId block, const std::string& chain) {
    std::optional<PrefixKey> parent;
    if (chain.size() > 1) parent = Key(chain.substr(0, chain.size() - 1));
    return pool.Publish(block, Key(chain), parent, Ids(chain.back()));
  }
  // Publishes a chain and releases it, tail first.
  void Cache(const std::string& chain) {
    std::vector<BlockId> blocks;
    for (std::size_t n = 1; n <= chain.size(); ++n) {
      const std::string prefix = chain.substr(0, n);
      BlockId block = Find(prefix);
      if (block != kNoBlock) {
        pool.Ref(block);
      } else {
        block = pool.Allocate();
        EXPECT_EQ(Publish(block, prefix), block);
      }
      blocks.push_back(block);
    }
    while (!blocks.empty()) {
      pool.Unref(blocks.back(), Touch::kYes);
      blocks.pop_back();
    }
  }
  void Check(std::vector<BlockId> held = {}) {
    const absl::Status status = pool.CheckInvariants(held);
    EXPECT_TRUE(status.ok()) << status.message();
  }

 private:
  AlignedBytes memory_;

 public:
  BlockPool pool;
};

TEST(BlockPoolTest, FreeBlocksFirstThenNone) {
  Pool p(2);
  const BlockId a = p.pool.Allocate(), b = p.pool.Allocate();
  EXPECT_NE(a, b);
  EXPECT_EQ(p.pool.data(b) - p.pool.data(a), (b - a) * std::ptrdiff_t{kBytes});
  EXPECT_EQ(p.pool.Allocate(), kNoBlock);
  p.Check({a, b});
  p.pool.Unref(a, Touch::kYes);
  EXPECT_EQ(p.pool.Allocate(), a);
  p.pool.Unref(a, Touch::kYes);
  p.pool.Unref(b, Touch::kYes);
  EXPECT_EQ(p.pool.counts().free, 2);
  p.Check();
}

TEST(BlockPoolTest, RowsOfASessionNeverEnterTheIndex) {
  Pool p(2);
  const BlockId block = p.pool.Allocate();
  EXPECT_EQ(p.pool.provenance(block), Provenance::kGrid);
  p.pool.MarkSession(block);
  EXPECT_EQ(p.pool.provenance(block), Provenance::kSession);
  EXPECT_DEATH(p.Publish(block, "a"), "");
  // The next rows in it are others.
  p.pool.Unref(block, Touch::kYes);
  EXPECT_EQ(p.pool.Allocate(), block);
  EXPECT_EQ(p.Publish(block, "a"), block);
  EXPECT_DEATH(p.pool.MarkSession(block), "");
}

TEST(BlockPoolTest, PublishedBlocksStayUntilTheyAreNeeded) {
  Pool p(3);
  p.Cache("ab");
  EXPECT_EQ(p.pool.counts().cached, 2);
  EXPECT_NE(p.Find("ab"), kNoBlock);
  EXPECT_EQ(p.Find("b"), kNoBlock);  // a key says what lies below it
  p.Check();
}

TEST(BlockPoolTest, AHitNeedsEqualIdsNotOnlyAnEqualKey) {
  Pool p(1);
  p.Cache("a");
  EXPECT_EQ(p.pool.Find(Pool::Key("a"), Pool::Ids('x')), kNoBlock);
  auto last_differs = Pool::Ids('a');
  ++last_differs.back();
  EXPECT_EQ(p.pool.Find(Pool::Key("a"), last_differs), kNoBlock);
}

TEST(BlockPoolTest, AKeyTakenByOtherIdsIsNotPublished) {
  Pool p(2);
  p.Cache("a");
  const BlockId block = p.pool.Allocate();
  EXPECT_EQ(p.pool.Publish(block, Pool::Key("a"), std::nullopt, Pool::Ids('x')),
            kNoBlock);
  p.Check({block});
}

TEST(BlockPoolTest, EvictsTailsFirstAndLeastRecentlyUsedFirst) {
  Pool p(4);
  p.Cache("ab");
  p.Cache("xy");
  const BlockId first = p.pool.Allocate();  // the tail of the older chain
  EXPECT_EQ(p.Find("ab"), kNoBlock);
  EXPECT_NE(p.Find("a"), kNoBlock);
  EXPECT_TRUE(p.pool.EvictedLately(Pool::Key("ab")));
  EXPECT_FALSE(p.pool.EvictedLately(Pool::Key("a")));
  const BlockId second = p.pool.Allocate();
  EXPECT_EQ(p.Find("a"), kNoBlock);
  EXPECT_NE(p.Find("xy"), kNoBlock);
  p.Check({first, second});
}

TEST(BlockPoolTest, AUseMakesAChainTheLastToGo) {
  Pool p(4);
  p.Cache("ab");
  p.Cache("xy");
  p.Cache("ab");
  const BlockId first = p.pool.Allocate();
  EXPECT_NE(p.Find("ab"), kNoBlock);
  EXPECT_EQ(p.Find("xy"), kNoBlock);
  p.Check({first});
}

TEST(BlockPoolTest, AMiddleOutlivesNeitherEndOfItsChain) {
  Pool p(3);
  p.Cache("abc");
  // The middle is read by someone: its child may go, its parent may not.
  const BlockId middle = p.Find("ab");
  p.pool.Ref(middle);
  const BlockId taken = p.pool.Allocate();
  EXPECT_EQ(p.Find("abc"), kNoBlock);
  EXPECT_EQ(p.pool.Allocate(), kNoBlock);
  EXPECT_NE(p.Find("a"), kNoBlock);
  p.Check({middle, taken});
}

TEST(BlockPoolTest, PublishingTwiceGivesTheFirstBlock) {
  Pool p(2);
  p.Cache("a");
  const BlockId first = p.Find("a");
  const BlockId again = p.pool.Allocate();
  EXPECT_EQ(p.Publish(again, "a"), first);
  p.Check({again});
}

TEST(BlockPoolTest, AChainWithAGapIsNotPublished) {
  Pool p(1);
  const BlockId block = p.pool.Allocate();
  EXPECT_EQ(p.Publish(block, "ab"), kNoBlock);
  p.Check({block});
}

TEST(BlockTableTest, ScratchLeavesNoTrace) {
  Pool p(4);
  p.Cache("ab");
  p.Cache("a");
  const std::string before = p.pool.Describe();
  {
    BlockTable table(&p.pool, BlockTable::Kind::kScratch);
    table.Adopt(p.Find("a"));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(table.Append());
    EXPECT_NE(table.block(1), kNoBlock);  // free ones first
    EXPECT_NE(table.block(2), kNoBlock);
    EXPECT_EQ(table.block(3), kNoBlock);  // then memory of its own
    for (int i = 0; i < table.size(); ++i) {
      *table.pointer(i) = std::byte{1};
      EXPECT_EQ(table.pointers()[i], table.pointer(i));
    }
  }
  EXPECT_EQ(p.pool.Describe(), before);
  p.Check();
}

TEST(BlockTableTest, PooledTablesEvictAndMove) {
  Pool p(2);
  p.Cache("ab");
  BlockTable table(&p.pool, BlockTable::Kind::kPooled);
  ASSERT_TRUE(table.Append());
  ASSERT_TRUE(table.Append());
  EXPECT_FALSE(table.Append());
  BlockTable other(&p.pool, BlockTable::Kind::kPooled);
  other = std::move(table);
  EXPECT_EQ(other.size(), 2);
  p.Check({other.block(0), other.block(1)});
  other.Clear();
  EXPECT_EQ(p.pool.counts().free, 2);
}

// Sequences come, share, publish, end in random order; after every step the
// pool's own rules hold and a block's content is still what its key says.
TEST(BlockPoolProperty, RulesHoldUnderRandomUse) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int blocks = 3 + static_cast<int>(random() % 12);
    Pool p(blocks);
    struct Live {
      std::string chain;
      BlockTable table;
    };
    std::vector<Live> live;
    for (int step = 0; step < 400; ++step) {
      const auto any = [&] { return random() % live.size(); };
      switch (random() % 4) {
        case 0: {  // begins on what is cached
          const auto kind = random() % 4 == 0 ? BlockTable::Kind::kScratch
                                              : BlockTable::Kind::kPooled;
          Live next{.chain = "", .table = BlockTable(&p.pool, kind)};
          for (;;) {
            const std::string longer =
                next.chain + static_cast<char>('a' + random() % 2);
            const BlockId block = p.Find(longer);
            if (block == kNoBlock) break;
            EXPECT_EQ(static_cast<char>(*p.pool.data(block)), longer.back());
            next.table.Adopt(block);
            next.chain = longer;
          }
          live.push_back(std::move(next));
          break;
        }
        case 1:  // grows
          if (!live.empty()) {
            Live& grows = live[any()];
            if (grows.table.Append()) {
              grows.chain += static_cast<char>('a' + random() % 2);
              *grows.table.pointer(grows.table.size() - 1) =
                  static_cast<std::byte>(grows.chain.back());
            }
          }
          break;
        case 2:  // publishes
          if (!live.empty()) {
            Live& publishes = live[any()];
            if (publishes.table.kind() == BlockTable::Kind::kScratch) break;
            for (int i = 0; i < publishes.table.size(); ++i) {
              const BlockId mine = publishes.table.block(i);
              const BlockId holder =
                  p.Publish(mine, publishes.chain.substr(0, i + 1));
              if (holder == kNoBlock) break;
              if (holder != mine) publishes.table.Replace(i, holder);
            }
          }
          break;
        default:  // ends
          if (!live.empty() && random() % 2 == 0) {
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(any()));
          }
      }
      std::vector<BlockId> held;
      for (const Live& sequence : live) {
        for (int i = 0; i < sequence.table.size(); ++i) {
          EXPECT_EQ(static_cast<char>(*sequence.table.pointer(i)),
                    sequence.chain[i]);
          if (sequence.table.block(i) != kNoBlock) {
            held.push_back(sequence.table.block(i));
          }
        }
      }
      p.Check(held);
      if (HasFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    live.clear();
    p.Check();
    EXPECT_EQ(p.pool.counts().used, 0);
  }
}

TEST(BlockPoolTest, ABlockIsOfTheHighestClassOfItsReferences) {
  Pool p(3);
  const BlockId a = p.pool.Allocate(RetentionClass::kParked);
  EXPECT_EQ(p.pool.retention(a), RetentionClass::kParked);
  p.pool.Ref(a, RetentionClass::kResident);
  EXPECT_EQ(p.pool.retention(a), RetentionClass::kResident);
  EXPECT_EQ(p.pool.held(RetentionClass::kParked), 0);
  EXPECT_EQ(p.pool.held(RetentionClass::kResident), 1);
  p.pool.Reclass(a, RetentionClass::kParked, RetentionClass::kPinned);
  p.Check({a, a});
  p.pool.Unref(a, Touch::kNo, RetentionClass::kResident);
  EXPECT_EQ(p.pool.held(RetentionClass::kPinned), 1);
  // Whoever it is lent to keeps nothing.
  p.pool.Ref(a);
  p.pool.Unref(a, Touch::kNo, RetentionClass::kPinned);
  EXPECT_EQ(p.pool.retention(a), RetentionClass::kNone);
  p.Check({a});
  p.pool.Unref(a, Touch::kNo);
  EXPECT_EQ(p.pool.held(RetentionClass::kNone), 0);
  EXPECT_EQ(p.pool.counts().free, 3);
}

TEST(BlockTableTest, IsCutFromItsEndAndChangesTheClassOfItsBlocks) {
  Pool p(4);
  BlockTable table(&p.pool, BlockTable::Kind::kPooled);
  table.set_retention(RetentionClass::kGuest);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(table.Append());
  EXPECT_EQ(p.pool.held(RetentionClass::kGuest), 4);
  table.Reclass(0, 1, RetentionClass::kPinned);
  EXPECT_EQ(p.pool.held(RetentionClass::kPinned), 1);
  EXPECT_EQ(table.retention(0), RetentionClass::kPinned);
  table.Truncate(2);
  EXPECT_EQ(p.pool.held(RetentionClass::kGuest), 1);
  EXPECT_EQ(p.pool.counts().free, 2);
  table.Clear();
  p.Check();
}

}  // namespace
}  // namespace holdfast::engine
