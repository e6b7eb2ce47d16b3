#include "engine/model/safetensors.h"

#include <cstdint>
#include <string>

#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  kernels::StatusOr<SafetensorsFile> Open(const std::string& header,
                                          std::size_t data_bytes) {
    const std::uint64_t size = header.size();
    return OpenBytes(
        std::string(reinterpret_cast<const char*>(&size), sizeof size) +
        header + std::string(data_bytes, '\1'));
  }
  kernels::StatusOr<SafetensorsFile> OpenBytes(const std::string& bytes) {
    EXPECT_TRUE(testing::WriteFile(path_, bytes).ok());
    return SafetensorsFile::Open(path_);
  }
  std::string ErrorOf(const std::string& header, std::size_t data_bytes) {
    const auto file = Open(header, data_bytes);
    return file.ok() ? "" : file.status().message();
  }

  testing::TempFolder folder_;
  std::string path_ = folder_.File("a.safetensors");
};

TEST_F(SafetensorsTest, ReadsTensors) {
  const auto file = Open(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [2, 1], "data_offsets": [6, 14]},
          "a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}  )",
      14);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  const FileTensor& a = file->tensors()[0];
  const FileTensor& b = file->tensors()[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, kernels::WeightType::kBF16);
  EXPECT_THAT(a.shape, ElementsAre(3));
  EXPECT_EQ(b.name, "b");
  EXPECT_THAT(b.shape, ElementsAre(2, 1));
  EXPECT_EQ(b.data, a.data + 6);
}

TEST_F(SafetensorsTest, NamesWhatIsBroken) {
  const auto one = [](const char* dtype, const char* shape,
                      const char* offsets) {
    return std::string(R"({"w": {"dtype": ")") + dtype + R"(", "shape": )" +
           shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  EXPECT_EQ(ErrorOf(one("F32", "[2]", "[0, 8]"), 8), "");
  EXPECT_THAT(ErrorOf(one("I64", "[1]", "[0, 8]"), 8),
              HasSubstr("tensor w has type I64"));
  EXPECT_THAT(ErrorOf(one("F32", "[3]", "[0, 8]"), 8), HasSubstr("12 bytes"));
  EXPECT_THAT(ErrorOf(one("F32", "[-2]", "[0, 8]"), 8), HasSubstr("[-2]"));
  EXPECT_THAT(ErrorOf(one("F32", "[1e0]", "[0, 8]"), 8), HasSubstr("shape"));
  EXPECT_THAT(
      ErrorOf(one("F32", "[2147483647, 2147483647, 2147483647]", "[0, 8]"), 8),
      HasSubstr("tensor w: shape"));
  EXPECT_THAT(ErrorOf(one("F32", "[2]", "[8, 0]"), 8), HasSubstr("tensor w"));
  EXPECT_THAT(ErrorOf(one("F32", "[2]", "[0]"), 8), HasSubstr("tensor w"));
  EXPECT_THAT(ErrorOf(one("F32", "[2]", "[4, 12]"), 12), HasSubstr("gap"));
  EXPECT_THAT(ErrorOf(one("F32", "[2]", "[0, 8]"), 7),
              HasSubstr("past the file's end"));
  EXPECT_THAT(ErrorOf(one("F32", "[2]", "[0, 8]"), 9),
              HasSubstr("1 bytes after the last tensor"));
  EXPECT_THAT(
      ErrorOf(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                  "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
              12),
      HasSubstr("tensor b"));
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("not an object"));
  EXPECT_THAT(ErrorOf("{", 0), HasSubstr("not valid JSON"));
}

TEST_F(SafetensorsTest, HeaderPastTheEndIsRefused) {
  EXPECT_THAT(OpenBytes("short").status().message(), HasSubstr("too short"));
  EXPECT_THAT(OpenBytes(std::string(8, '\x7f') + "{}").status().message(),
              HasSubstr("past the file's end"));
  EXPECT_THAT(
      OpenBytes(std::string("\3\0\0\0\0\0\0\0{}", 10)).status().message(),
      HasSubstr("header of 3 bytes"));
}

}  // namespace
}  // namespace holdfast::model
