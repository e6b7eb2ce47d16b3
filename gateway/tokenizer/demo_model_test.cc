// The demo model's own tokenizer, read from its file, against Hugging Face.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "engine/model/gguf.h"
#include "engine/model/tokenizer_files.h"
#include "gateway/tokenizer/testing/golden.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {
namespace {

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
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const testing::GoldenCase& one :
       testing::ReadCases("tests/golden/tokenizer/smollm2.cases.json")) {
    EXPECT_EQ(*(*tokenizer)->Encode(one.text, {}), one.ids) << one.text;
    EXPECT_EQ(*(*tokenizer)->Encode(one.text, {.parse_added = false}),
              one.plain)
        << one.text;
  }
}

}  // namespace
}  // namespace holdfast::gateway
