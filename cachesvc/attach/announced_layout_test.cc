#include "cachesvc/attach/announced_layout.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kPoolBytes = 64 * 16384;

AnnouncedLayout Good() {
  AnnouncedLayout announced;
  announced.model_name = "tiny";
  announced.layout.views = {{.name = "K", .bytes_per_token = 32, .parts = 1},
                            {.name = "V", .bytes_per_token = 32, .parts = 1}};
  announced.layout.sections = {{.name = "h_last", .bytes = 64}};
  announced.block_tokens = kBlockTokens;
  announced.block_bytes = 16384;
  announced.block_count = 64;
  return announced;
}

std::string Fault(const AnnouncedLayout& announced) {
  return std::string(CheckLayout(announced, kPoolBytes).message());
}

TEST(AnnouncedLayout, AcceptsWhatEnginesAnnounce) {
  EXPECT_EQ(Fault(Good()), "");
  AnnouncedLayout padded = Good();
  padded.layout.views[0].bytes_per_token = 20;  // blocks may have padding
  EXPECT_EQ(Fault(padded), "");
  AnnouncedLayout smaller = Good();
  smaller.block_count = 1;
  EXPECT_EQ(Fault(smaller), "");
  AnnouncedLayout no_sections = Good();
  no_sections.layout.sections.clear();
  EXPECT_EQ(Fault(no_sections), "");
}

TEST(AnnouncedLayout, NamesAreCheckedAndNamed) {
  for (const std::string& name :
       {std::string(), std::string(65, 'x'), std::string("a b"),
        std::string("\n"), std::string("\0", 1), std::string("\xc3\xa4")}) {
    AnnouncedLayout bad = Good();
    bad.layout.views[1].name = name;
    EXPECT_THAT(Fault(bad), HasSubstr("part 2: a view's name")) << name;
    bad = Good();
    bad.layout.sections[0].name = name;
    EXPECT_THAT(Fault(bad), HasSubstr("part 3: a section's name")) << name;
  }
  AnnouncedLayout twice = Good();
  twice.layout.sections[0].name = "K";
  EXPECT_THAT(Fault(twice), HasSubstr("two parts are named K"));
  AnnouncedLayout model = Good();
  model.model_name = std::string(1025, 'm');
  EXPECT_THAT(Fault(model), HasSubstr("model_name"));
}

TEST(AnnouncedLayout, SizesAreCheckedAgainstThePool) {
  AnnouncedLayout bad = Good();
  bad.layout.views.clear();
  EXPECT_THAT(Fault(bad), HasSubstr("no views"));
  bad = Good();
  bad.layout.views[0].bytes_per_token = 0;
  EXPECT_THAT(Fault(bad), HasSubstr("view K: no bytes"));
  bad = Good();
  bad.layout.sections[0].bytes = 0;
  EXPECT_THAT(Fault(bad), HasSubstr("section h_last: no bytes"));
  bad = Good();
  bad.block_tokens = 255;
  EXPECT_THAT(Fault(bad), HasSubstr("block_tokens 255"));
  for (std::uint32_t grid : {0u, 255u, 1000u}) {
    bad = Good();
    bad.layout.grid_tokens = grid;
    EXPECT_THAT(Fault(bad), HasSubstr("grid_tokens " + std::to_string(grid)));
  }
  for (std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{12288}, std::uint64_t{16385}, kMax}) {
    bad = Good();
    bad.block_bytes = bytes;
    EXPECT_THAT(Fault(bad), HasSubstr("block_bytes " + std::to_string(bytes)));
  }
  for (std::uint64_t count : {std::uint64_t{0}, std::uint64_t{65}, kMax}) {
    bad = Good();
    bad.block_count = count;
    EXPECT_THAT(Fault(bad), HasSubstr(std::to_string(count) + " blocks"));
  }
}

TEST(AnnouncedLayout, NoSumOverflows) {
  AnnouncedLayout bad = Good();
  bad.layout.views[1].bytes_per_token = kMax - 16;  // the sum would be 15
  EXPECT_THAT(Fault(bad), HasSubstr("view V"));
  bad = Good();
  bad.layout.views[0].bytes_per_token = kMax / 2;  // times 256 would be small
  EXPECT_THAT(Fault(bad), HasSubstr("block_bytes"));
  bad = Good();
  bad.block_count = kMax / 16384 + 2;  // the product would be 16384
  EXPECT_THAT(Fault(bad), HasSubstr("blocks of 16384"));
  bad = Good();
  bad.layout.sections = {{.name = "a", .bytes = kMax},
                         {.name = "b", .bytes = 1}};
  EXPECT_THAT(Fault(bad), HasSubstr("section b"));
  bad = Good();
  for (int i = 0; i < 300; ++i)
    bad.layout.sections.push_back({.name = std::to_string(i), .bytes = 1});
  EXPECT_THAT(Fault(bad), HasSubstr("at most 256"));
}

TEST(LayoutBook, KnowsTheNewestEpochAlone) {
  LayoutBook book;
  EXPECT_FALSE(book.Get(0).has_value());
  book.Put(7, Good());
  ASSERT_TRUE(book.Get(7).has_value());
  EXPECT_EQ(book.Get(7)->model_name, "tiny");
  EXPECT_FALSE(book.Get(8).has_value());
  book.Put(8, Good());
  EXPECT_FALSE(book.Get(7).has_value());
}

}  // namespace
}  // namespace holdfast::cachesvc
