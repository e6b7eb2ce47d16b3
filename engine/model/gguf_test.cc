#include "engine/model/gguf.h"

#include <cstring>
#include <string>
#include <vector>

#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/quantize.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using kernels::WeightType;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

class GgufTest : public ::testing::Test {
 protected:
  kernels::StatusOr<GgufFile> Open(const std::string& bytes) {
    EXPECT_TRUE(testing::WriteFile(path_, bytes).ok());
    return GgufFile::Open(path_);
  }
  std::string ErrorOf(const std::string& bytes) {
    const auto file = Open(bytes);
    return file.ok() ? "" : file.status().message();
  }
  static void AddTensor(const char* name, std::int64_t rows, GgufWriter* writer,
                        WeightType type = WeightType::kF32) {
    const std::vector<float> values(rows * 32, 1.5f);
    const std::int64_t shape[] = {rows, 32};
    writer->AddTensor(name, type, shape, testing::Store(type, values));
  }

  testing::TempFolder folder_;
  std::string path_ = folder_.File("a.gguf");
};

TEST_F(GgufTest, ReadsValuesByType) {
  GgufWriter writer;
  writer.AddU32("int", 7);
  writer.AddF32("float", 0.5f);
  writer.AddBool("bool", true);
  writer.AddString("string", "text");
  writer.AddStrings("strings", std::vector<std::string>{"a", "", "b c"});
  writer.AddInts("ints", std::vector<std::int32_t>{-1, 2});
  const auto file = Open(writer.Finish());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(**file->Integer("int"), 7);
  EXPECT_EQ(**file->Number("int"), 7.0);
  EXPECT_EQ(**file->Number("float"), 0.5);
  EXPECT_EQ(**file->Bool("bool"), true);
  EXPECT_EQ(**file->String("string"), "text");
  EXPECT_THAT(**file->Strings("strings"), ElementsAre("a", "", "b c"));
  EXPECT_THAT(**file->Integers("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(file->keys(),
              ElementsAre("int", "float", "bool", "string", "strings", "ints"));

  EXPECT_FALSE(file->Integer("absent")->has_value());
  EXPECT_EQ(*file->Strings("absent"), nullptr);
  EXPECT_THAT(file->Integer("string").status().message(),
              HasSubstr("key string is not an integer"));
  EXPECT_THAT(file->String("int").status().message(), HasSubstr("key int"));
  EXPECT_THAT(file->Bool("int").status().message(), HasSubstr("key int"));
  EXPECT_THAT(file->Strings("ints").status().message(), HasSubstr("key ints"));
  EXPECT_THAT(file->Integers("strings").status().message(),
              HasSubstr("key strings"));
}

TEST_F(GgufTest, ReadsTensorsOfEveryType) {
  GgufWriter writer;
  const WeightType types[] = {
      WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
      WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
      WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
      WeightType::kQ5_K, WeightType::kQ6_K};
  const std::int64_t shape[] = {3, 256};
  const std::vector<float> values(3 * 256, 1.5f);
  for (WeightType type : types) {
    writer.AddTensor(kernels::WeightTypeName(type), type, shape,
                     testing::Store(type, values));
  }
  const auto file = Open(writer.Finish());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), std::size(types));
  for (std::size_t i = 0; i < std::size(types); ++i) {
    const FileTensor& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.type, types[i]);
    EXPECT_EQ(tensor.name, kernels::WeightTypeName(types[i]));
    EXPECT_THAT(tensor.shape, ElementsAre(3, 256));
    const std::string expected = testing::Store(types[i], values);
    ASSERT_EQ(tensor.bytes, expected.size());
    EXPECT_EQ(std::memcmp(tensor.data, expected.data(), expected.size()), 0);
  }
}

TEST_F(GgufTest, NamesWhatIsBroken) {
  GgufWriter twice;
  AddTensor("blk.0.same", 1, &twice);
  AddTensor("blk.0.same", 1, &twice);
  EXPECT_THAT(ErrorOf(twice.Finish()), HasSubstr("blk.0.same occurs twice"));

  GgufWriter keys;
  keys.AddU32("k", 1);
  keys.AddU32("k", 2);
  EXPECT_THAT(ErrorOf(keys.Finish()), HasSubstr("key k occurs twice"));

  GgufWriter alignment;
  alignment.AddU32("general.alignment", 24);
  EXPECT_THAT(ErrorOf(alignment.Finish()), HasSubstr("general.alignment"));

  EXPECT_THAT(ErrorOf("GGML...."), HasSubstr("not a GGUF file"));
  EXPECT_THAT(ErrorOf(""), HasSubstr(path_));
}

TEST_F(GgufTest, ChecksVersionTypeAndPlaceOfTensors) {
  GgufWriter writer;
  AddTensor("first", 2, &writer);
  AddTensor("second", 2, &writer);
  std::size_t header = 0;
  const std::string good = writer.Finish(&header);
  ASSERT_EQ(ErrorOf(good), "");
  const auto with = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return ErrorOf(bytes);
  };
  EXPECT_THAT(with(4, 1), HasSubstr("version 1"));
  EXPECT_EQ(with(4, 2), "");
  std::string big_endian = good;
  big_endian.replace(4, 4, std::string("\0\0\0\3", 4));
  EXPECT_THAT(ErrorOf(big_endian), HasSubstr("big-endian"));

  // The header ends with the last tensor's type (u32) and offset (u64).
  EXPECT_THAT(with(header - 12, 10), HasSubstr("second has type Q2_K"));
  EXPECT_THAT(with(header - 12, 14),
              HasSubstr("second: shape [2, 32] does not fit type Q6_K"));
  EXPECT_THAT(with(header - 12, 99), HasSubstr("second has type 99"));
  EXPECT_THAT(with(header - 8, 1), HasSubstr("second starts at offset 257"));
  EXPECT_THAT(with(header - 7, 0), HasSubstr("first and second overlap"));
  EXPECT_THAT(with(header - 1, 0x7f), HasSubstr("second"));
  EXPECT_THAT(ErrorOf(good.substr(0, good.size() - 1)),
              HasSubstr("second (256 bytes at offset 256) is past the file"));
}

TEST_F(GgufTest, CountsPastTheEndAreRefusedAtOnce) {
  GgufWriter writer;
  writer.AddStrings("strings", std::vector<std::string>(3, "abc"));
  const std::string good = writer.Finish();
  const auto with_bytes = [&](std::size_t at) {
    std::string bytes = good;
    bytes.replace(at, 8, std::string(8, '\x7f'));
    return ErrorOf(bytes);
  };
  EXPECT_THAT(with_bytes(8), HasSubstr("tensor count"));
  EXPECT_THAT(with_bytes(16), HasSubstr("metadata count"));
  EXPECT_THAT(with_bytes(24), HasSubstr("metadata key 0"));
  // Key (8 + 7), type 4, element type 4, then the count.
  EXPECT_THAT(with_bytes(24 + 15 + 8), HasSubstr("key strings"));
  EXPECT_THAT(with_bytes(24 + 15 + 16), HasSubstr("key strings"));
}

}  // namespace
}  // namespace holdfast::model
