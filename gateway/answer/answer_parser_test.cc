#include "gateway/answer/answer_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "gateway/answer/testing/parse.h"
#include "gtest/gtest.h"

namespace holdfast::answer {
namespace {

using testing::HermesFormat;
using testing::Parse;
using testing::Show;
using testing::XmlFormat;

std::string Hermes(const std::string& text) {
  return Show(Parse(HermesFormat(), text, /*in_reasoning=*/false));
}
std::string Qwen(const std::string& text) {
  return Show(Parse(XmlFormat(), text, /*in_reasoning=*/true));
}

TEST(AnswerParserTest, PlainTextPassesAtOnce) {
  AnswerParser parser(AnswerFormat{}, false, nullptr);
  const std::vector<Piece> pieces = parser.Push("a <tool_call>{ <think>\n");
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_EQ(pieces[0].text, "a <tool_call>{ <think>\n");
  EXPECT_TRUE(parser.Finish().empty());
}

TEST(AnswerParserTest, ReasoningComesFirst) {
  EXPECT_EQ(Hermes("<think>\nhm\n</think>\n\nYes."), "R[hm] C[Yes.]");
  EXPECT_EQ(Hermes("\n <think>hm</think>Yes."), "R[hm] C[Yes.]");
  EXPECT_EQ(Hermes("<think>\n\n</think>\n\nYes."), "C[Yes.]");
  EXPECT_EQ(Qwen("hm\n</think>\n\nYes."), "R[hm] C[Yes.]");
  EXPECT_EQ(Qwen("\n</think>\n\n"), "");
  // Only the template's own white space goes.
  EXPECT_EQ(Hermes("<think>\n\n hm \n\n</think>\n\n\n Yes.\n"),
            "R[\n hm \n] C[\n Yes.\n]");
}

TEST(AnswerParserTest, ThinkTagsElsewhereAreText) {
  EXPECT_EQ(Hermes("Yes <think>hm</think>."), "C[Yes <think>hm</think>.]");
  EXPECT_EQ(Hermes("</think>"), "C[</think>]");
  EXPECT_EQ(Qwen("a <think> b</think>c</think>d"),
            "R[a <think> b] C[c</think>d]");
  EXPECT_EQ(Hermes("<thinking>"), "C[<thinking>]");
  EXPECT_EQ(Hermes("  <thi"), "C[  <thi]");
  EXPECT_EQ(Hermes(" \n"), "C[ \n]");
}

TEST(AnswerParserTest, ReasoningThatDoesNotEnd) {
  EXPECT_EQ(Qwen("hm\n</thin"), "R[hm\n</thin]");
  EXPECT_EQ(Qwen("hm <tool_call>\n<function=f>"),
            "R[hm <tool_call>\n<function=f>]");
}

TEST(AnswerParserTest, JsonCall) {
  EXPECT_EQ(Hermes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
                   "[1, \"}\"]}}\n</tool_call>"),
            "F[f] A[{\"a\": [1, \"}\"]}]");
  EXPECT_EQ(Hermes("Look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}"
                   "</tool_call>\n<tool_call>\n{\"name\": \"g\", "
                   "\"arguments\": {}}\n</tool_call>\n"),
            "C[Look.] F[f] A[{}] F[g] A[{}]");
}

TEST(AnswerParserTest, JsonCallInOtherShapes) {
  // The arguments first; a name with escapes; other fields; none at all.
  EXPECT_EQ(Hermes("<tool_call>{\"arguments\": {\"name\": 1}, \"name\": "
                   "\"\\u0066\"}</tool_call>"),
            "F[f] A[{\"name\": 1}]");
  EXPECT_EQ(Hermes("<tool_call>{\"id\": -1.5e3, \"name\": \"f\", \"arguments\""
                   ": {}, \"more\": [\"name\"]}</tool_call>"),
            "F[f] A[{}]");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\"}</tool_call>"), "F[f] A[{}]");
  // The end tag is missing, at the end and before text.
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}"),
            "F[f] A[{}]");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}} so"),
            "F[f] A[{}] C[ so]");
}

TEST(AnswerParserTest, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>", "<tool_call>\nf()\n</tool_call>", "<tool_call>{}",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": 1}",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": 7}</tool_call>",
        "<tool_call>{'name': 'f'}</tool_call>", "a\n\n<tool_call>\n{\"name",
        "</tool_call>", "<tool_call", "a \n <tool_cal"}) {
    EXPECT_EQ(Hermes(text), "C[" + text + "]");
  }
  // What comes behind may be one.
  EXPECT_EQ(Hermes("<tool_call> <tool_call>{\"name\": \"f\"}</tool_call>"),
            "C[<tool_call> ] F[f] A[{}]");
}

TEST(AnswerParserTest, JsonCallThatBreaksOff) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x"),
            "F[f] A[{\"a\": \"x]");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oh}}\n"
                   "</tool_call> no"),
            "F[f] A[{\"a\": ] C[oh}}\n</tool_call> no]");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}, \"name\": "
                   "\"g\"}"),
            "F[f] A[{}] C[}]");
}

TEST(AnswerParserTest, ArgumentsComeOnce) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}, "
                   "\"arguments\": {}}</tool_call>"),
            "F[f] A[{}] C[{}}</tool_call>]");
  const std::string twice =
      "<tool_call>{\"arguments\": {}, \"arguments\": {}, \"name\": \"f\"}";
  EXPECT_EQ(Hermes(twice), "C[" + twice + "]");
}

TEST(AnswerParserTest, XmlCall) {
  EXPECT_EQ(
      Qwen("\n</think>\n\nLook.\n\n<tool_call>\n<function=f>\n<parameter=s>\n"
           "a \"b\"\n c\n</parameter>\n<parameter=n>\n7\n</parameter>\n"
           "</function>\n</tool_call>"),
      "C[Look.] F[f] A[{\"s\": \"a \\\"b\\\"\\n c\", \"n\": 7}]");
  EXPECT_EQ(Qwen("</think>\n\n<tool_call>\n<function=g>\n</function>\n"
                 "</tool_call>\n<tool_call><function=f></function>"
                 "</tool_call>"),
            "F[g] A[{}] F[f] A[{}]");
}

TEST(AnswerParserTest, XmlValuesGetTheSchemasTypes) {
  const auto value = [](const std::string& name, const std::string& text) {
    const std::string shown =
        Qwen("</think><tool_call>\n<function=f>\n<parameter=" + name + ">\n" +
             text + "\n</parameter>\n</function>\n</tool_call>");
    const std::string head = "F[f] A[{\"" + name + "\": ";
    EXPECT_TRUE(shown.starts_with(head) && shown.ends_with("}]")) << shown;
    return shown.substr(head.size(), shown.size() - head.size() - 2);
  };
  EXPECT_EQ(value("s", "7"), "\"7\"");
  EXPECT_EQ(value("n", "7"), "7");
  EXPECT_EQ(value("n", "seven"), "\"seven\"");
  EXPECT_EQ(value("b", "True"), "true");
  EXPECT_EQ(value("o", "{\"a\": [1]}"), "{\"a\": [1]}");
  EXPECT_EQ(value("o", "{a: 1}"), "\"{a: 1}\"");
  EXPECT_EQ(value("unknown", "7"), "\"7\"");
  EXPECT_EQ(value("s", ""), "\"\"");
  EXPECT_EQ(value("s", "\n\n"), "\"\\n\\n\"");
}

TEST(AnswerParserTest, XmlValuesMayHoldTags) {
  const std::string file =
      "<parameter=x>\n1\n</parameter> of\n</tool_call>\n</parameter>.";
  EXPECT_EQ(Qwen("</think><tool_call>\n<function=f>\n<parameter=s>\n" + file +
                 "\n</parameter>\n</function>\n</tool_call>"),
            "F[f] A[{\"s\": \"<parameter=x>\\n1\\n</parameter> of\\n"
            "</tool_call>\\n</parameter>.\"}]");
}

TEST(AnswerParserTest, XmlInOtherShapes) {
  EXPECT_EQ(Qwen("</think><tool_call><function=f><parameter=s>a</parameter>"
                 "</tool_call>"),
            "F[f] A[{\"s\": \"a\"}]");
  EXPECT_EQ(Qwen("</think><tool_call><function=f></function> end"),
            "F[f] A[{}] C[ end]");
}

TEST(AnswerParserTest, XmlThatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=f\n></function></tool_call>",
        "<tool_call><function=f", "<function=f></function>"}) {
    EXPECT_EQ(Qwen("</think>" + text), "C[" + text + "]");
  }
  const std::string long_name =
      "<tool_call><function=" + std::string(300, 'x') + ">";
  EXPECT_EQ(Qwen("</think>" + long_name), "C[" + long_name + "]");
}

TEST(AnswerParserTest, XmlCallThatBreaksOff) {
  const std::string head = "</think><tool_call><function=f>";
  EXPECT_EQ(Qwen(head), "F[f]");
  EXPECT_EQ(Qwen(head + "\n"), "F[f]");
  EXPECT_EQ(Qwen(head + "<parameter=s>\nab"), "F[f] A[{\"s\": \"ab]");
  EXPECT_EQ(Qwen(head + "<parameter=n>\n12"), "F[f] A[{\"n\": 12]");
  EXPECT_EQ(Qwen(head + "<parameter=s>ab\n</parameter>\n"),
            "F[f] A[{\"s\": \"ab\"]");
  EXPECT_EQ(Qwen(head + "oh <parameter=s>"), "F[f] C[oh <parameter=s>]");
  EXPECT_EQ(Qwen(head + "<parameter=s>a</parameter><parameter>"),
            "F[f] A[{\"s\": \"a</parameter><parameter>]");
}

TEST(AnswerParserTest, WithoutToolsCallsAreContent) {
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  AnswerParser parser(HermesFormat(), false, nullptr);
  std::vector<Piece> pieces = parser.Push("<think>r</think>" + call);
  EXPECT_EQ(Show(pieces), "R[r] C[" + call + "]");
}

// Nothing waits but what may still become a tag.
TEST(AnswerParserTest, StreamsPieceByPiece) {
  AnswerParser parser(XmlFormat(), true, testing::TestTools());
  const auto push = [&parser](const std::string& text) {
    return Show(parser.Push(text));
  };
  EXPECT_EQ(push("so"), "R[so]");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(push("\n"), "");
  EXPECT_EQ(push("it is"), "R[\nit is]");
  EXPECT_EQ(push("\n</thi"), "");
  EXPECT_EQ(push("nk>"), "");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(push("\n\nA"), "C[A]");
  EXPECT_EQ(push(" <b>"), "C[ <b>]");
  EXPECT_EQ(push("\n\n<tool_call>\n<function=f"), "");
  EXPECT_EQ(push(">\n"), "F[f]");
  EXPECT_EQ(push("<parameter=s>\nab"), "A[{\"s\": \"ab]");
  EXPECT_EQ(push("c</b>\n"), "A[c</b>]");
  EXPECT_EQ(push("d\n</parameter>"), "A[\\nd]");
  EXPECT_EQ(push("\n</function>"), "A[\"}]");
  EXPECT_EQ(push("\n</tool_call>"), "");
  EXPECT_EQ(Show(parser.Finish()), "");
}

TEST(AnswerParserTest, JsonArgumentsStream) {
  AnswerParser parser(HermesFormat(), false, testing::TestTools());
  EXPECT_EQ(Show(parser.Push("<tool_call>{\"name\": \"f\", \"arg")), "");
  EXPECT_EQ(Show(parser.Push("uments\": {\"a\"")), "F[f] A[{\"a\"]");
  EXPECT_EQ(Show(parser.Push(": \"\xC3\xA9")), "A[: \"\xC3\xA9]");
  EXPECT_EQ(Show(parser.Push("\"}}</tool_call>")), "A[\"}]");
}

}  // namespace
}  // namespace holdfast::answer
