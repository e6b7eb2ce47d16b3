#include "cachesvc/store/open_files.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "shared/fs/testing/fake_file_system.h"

namespace holdfast::cachesvc {
namespace {

FileKey Key(const std::string& name) { return Sha256().Update(name).Finish(); }

class OpenFilesTest : public ::testing::Test {
 protected:
  OpenFilesTest() { EXPECT_TRUE(fs_.MakeDirectory("/d").ok()); }
  std::shared_ptr<File> NewFile() {
    return *fs_.Open("/d/" + std::to_string(++names_), OpenMode::kCreate);
  }

  holdfast::testing::FaultPoint faults_;
  holdfast::testing::FakeFileSystem fs_{faults_};
  int names_ = 0;
  OpenFiles files_;
};

TEST_F(OpenFilesTest, ADeletedFileCountsUntilItsLastHolderClosesIt) {
  auto a = NewFile(), b = NewFile();
  files_.Opened(Key("1"), a);
  files_.Opened(Key("1"), b);
  EXPECT_TRUE(files_.IsOpen(Key("1")));
  EXPECT_EQ(files_.HeldBytes(), 0u);
  files_.Deleted(Key("1"), 100);
  // A new one of its name is not that one.
  EXPECT_FALSE(files_.IsOpen(Key("1")));
  EXPECT_EQ(files_.HeldBytes(), 100u);
  a.reset();
  EXPECT_EQ(files_.HeldBytes(), 100u);
  b.reset();
  EXPECT_EQ(files_.HeldBytes(), 0u);
}

TEST_F(OpenFilesTest, AClosedOneCountsNothing) {
  auto a = NewFile();
  files_.Opened(Key("1"), a);
  a.reset();
  EXPECT_FALSE(files_.IsOpen(Key("1")));
  files_.Deleted(Key("1"), 100);
  files_.Deleted(Key("never open"), 100);
  EXPECT_EQ(files_.HeldBytes(), 0u);
}

TEST_F(OpenFilesTest, OpenOnesAreKnownAmongManyThatWereClosed) {
  auto a = NewFile();
  files_.Opened(Key("held"), a);
  for (int i = 0; i < 1000; ++i) {
    files_.Opened(Key("closed " + std::to_string(i)), NewFile());
  }
  EXPECT_TRUE(files_.IsOpen(Key("held")));
  files_.Deleted(Key("held"), 7);
  EXPECT_EQ(files_.HeldBytes(), 7u);
}

}  // namespace
}  // namespace holdfast::cachesvc
