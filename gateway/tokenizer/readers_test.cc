// Tokenizers as the engine reads them from a model's files, against Hugging
// Face.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "engine/model/gguf.h"
#include "engine/model/json.h"
#include "engine/model/tokenizer_files.h"
#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {
namespace {

void ExpectEqual(TokenizerSpec spec, const std::string& cases) {
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const testing::GoldenCase& one : testing::ReadCases(cases)) {
    EXPECT_EQ(*(*tokenizer)->Encode(one.text, {}), one.ids) << one.text;
    EXPECT_EQ(*(*tokenizer)->Encode(one.text, {.parse_added = false}),
              one.plain)
        << one.text;
  }
}

class ReaderTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReaderTest, TokenizerJsonEqualsHuggingFace) {
  const std::string base = std::string("tests/golden/tokenizer/") + GetParam();
  std::ifstream stream(base + ".json");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto json = model::JsonDocument::Parse(text, base);
  ASSERT_TRUE(json.ok()) << json.status().message();
  auto spec = model::TokenizerFromJson(json->root(), base);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  ExpectEqual(*std::move(spec), base + ".cases.json");
}

INSTANTIATE_TEST_SUITE_P(All, ReaderTest,
                         ::testing::ValuesIn(testing::kGoldenTokenizers));

TEST(DemoModelTest, EqualsHuggingFace) {
  const std::string path = HOLDFAST_DEMO_MODEL;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "NOT TESTED: the demo model is not at " << path
                 << " (scripts/setup gets it)";
  }
  const auto file = model::GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto spec = model::TokenizerFromGguf(*file);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  ExpectEqual(*std::move(spec), "tests/golden/tokenizer/smollm2.cases.json");
}

}  // namespace
}  // namespace holdfast::gateway
