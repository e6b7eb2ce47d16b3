// Renderings equal those of Hugging Face transformers, byte for byte
// (scripts/golden/make_chat_template_golden.py).
#include <fstream>
#include <string>

#include "gateway/template/chat_template.h"
#include "gtest/gtest.h"

namespace holdfast::templates {
namespace {

TEST(ChatTemplateGoldenTest, EqualsTransformers) {
  std::ifstream file("tests/golden/template/cases.json");
  ASSERT_TRUE(file.is_open());
  const Json golden = Json::parse(file);
  SpecialTokens tokens;
  tokens.bos = "<s>";
  tokens.eos = "</s>";
  for (const Json& one : golden["cases"]) {
    const auto source = golden["templates"][one["template"].get<int>()];
    const auto compiled =
        ChatTemplate::Create(source.get<std::string>(), tokens);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    RenderInput input;
    input.messages = one["messages"];
    input.tools = one["tools"];
    input.add_generation_prompt = one["add_generation_prompt"].get<bool>();
    input.kwargs = one["kwargs"];
    const auto text = (*compiled)->Render(input);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["text"].get<std::string>());
  }
  EXPECT_EQ(golden["cases"].size(), 24);
}

}  // namespace
}  // namespace holdfast::templates
