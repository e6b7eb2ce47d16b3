#include "shared/arena/memfd_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kBytes = 1 << 20;

UniqueFd RawMemfd(std::uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string RefusalOf(int fd, std::uint64_t bytes) {
  auto mapped =
      MappedArena::MapReadOnly("pool", fd, bytes, ArenaWriters::kCreatorOnly);
  return mapped.ok() ? "" : std::string(mapped.status().message());
}

TEST(MemfdArena, BothSidesSeeTheSameBytes) {
  auto arena =
      MemfdArena::Create("holdfast-pool", kBytes, ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->bytes(), kBytes);
  EXPECT_EQ(arena->data()[kBytes - 1], std::byte{0});
  auto mapped = MappedArena::MapReadOnly("pool", arena->fd(), kBytes,
                                         ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_NE(static_cast<const void*>(mapped->data()), arena->data());
  std::memset(arena->data(), 0x5a, kBytes);
  EXPECT_EQ(std::memcmp(mapped->data(), arena->data(), kBytes), 0);
}

TEST(MemfdArena, MoveKeepsTheAddress) {
  auto arena = MemfdArena::Create("a", kBytes, ArenaWriters::kEveryHolder);
  ASSERT_TRUE(arena.ok());
  std::byte* data = arena->data();
  MemfdArena moved = *std::move(arena);
  EXPECT_EQ(moved.data(), data);
  data[0] = std::byte{7};
  EXPECT_EQ(moved.data()[0], std::byte{7});
}

TEST(MemfdArena, MappingOutlivesTheCreator) {
  auto arena = MemfdArena::Create("a", kBytes, ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(arena.ok());
  arena->data()[kBytes - 1] = std::byte{9};
  auto mapped = MappedArena::MapReadOnly("a", arena->fd(), kBytes,
                                         ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(mapped.ok());
  { MemfdArena gone = *std::move(arena); }
  EXPECT_EQ(mapped->data()[kBytes - 1], std::byte{9});
}

TEST(MemfdArena, SizeIsSealed) {
  for (auto writers :
       {ArenaWriters::kCreatorOnly, ArenaWriters::kEveryHolder}) {
    auto arena = MemfdArena::Create("a", kBytes, writers);
    ASSERT_TRUE(arena.ok());
    EXPECT_NE(ftruncate(arena->fd(), 0), 0);
    EXPECT_NE(ftruncate(arena->fd(), 2 * kBytes), 0);
    EXPECT_NE(fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
}

TEST(MemfdArena, OnlyTheCreatorWritesThePool) {
  auto pool = MemfdArena::Create("p", kBytes, ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd(), 0),
      MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(pwrite(pool->fd(), &byte, 1, 0), 0);

  auto staging = MemfdArena::Create("s", kBytes, ArenaWriters::kEveryHolder);
  ASSERT_TRUE(staging.ok());
  EXPECT_EQ(pwrite(staging->fd(), &byte, 1, 0), 1);
}

TEST(MemfdArena, PagesAreTouchedLazily) {
  // Far more than any test machine has: only a lazy arena can be this large.
  auto arena = MemfdArena::Create("big", std::uint64_t{1} << 39,
                                  ArenaWriters::kCreatorOnly);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->data()[(std::uint64_t{1} << 39) - 1], std::byte{0});
}

TEST(MemfdArena, ErrorsNameTheArena) {
  for (std::uint64_t bytes :
       {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
    auto arena = MemfdArena::Create("mine", bytes, ArenaWriters::kCreatorOnly);
    ASSERT_FALSE(arena.ok());
    EXPECT_THAT(std::string(arena.status().message()), HasSubstr("mine"));
  }
  // No address space for it: the library's exception becomes a status.
  auto huge = MemfdArena::Create("mine", std::uint64_t{1} << 60,
                                 ArenaWriters::kCreatorOnly);
  ASSERT_FALSE(huge.ok());
  EXPECT_THAT(std::string(huge.status().message()), HasSubstr("mine"));
}

TEST(MappedArena, RefusesWhatItCannotTrust) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_THAT(RefusalOf(RawMemfd(kBytes, 0).get(), kBytes),
              HasSubstr("pool: seals 0x0 lack"));
  EXPECT_THAT(RefusalOf(RawMemfd(kBytes, kSize).get(), kBytes),
              HasSubstr("lack 0x10"));
  EXPECT_THAT(RefusalOf(RawMemfd(kBytes, F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
                                             F_SEAL_SEAL)
                            .get(),
                        kBytes),
              HasSubstr("lack 0x2"));
  const UniqueFd good = RawMemfd(kBytes, kSize | F_SEAL_FUTURE_WRITE);
  EXPECT_EQ(RefusalOf(good.get(), kBytes), "");
  EXPECT_THAT(RefusalOf(good.get(), kBytes + 1),
              HasSubstr("has 1048576 bytes"));
  EXPECT_THAT(RefusalOf(good.get(), kBytes - 1), HasSubstr("not 1048575"));
  EXPECT_THAT(RefusalOf(good.get(), 0), HasSubstr("not possible"));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THAT(RefusalOf(null.get(), kBytes), HasSubstr("no memfd"));
  EXPECT_THAT(RefusalOf(-1, kBytes), HasSubstr("no memfd"));
}

}  // namespace
}  // namespace holdfast
