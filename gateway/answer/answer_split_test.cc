// Whatever the model writes and however it is cut: nothing is lost, and the
// cuts change nothing.
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/answer/json_scanner.h"
#include "gateway/answer/testing/parse.h"
#include "gtest/gtest.h"

namespace holdfast::answer {
namespace {

using testing::Parse;

constexpr std::string_view kParts[] = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=f>",
    "<function=g>",
    "<function=",
    "</function>",
    "<parameter=s>",
    "<parameter=n>",
    "<parameter=o>",
    "</parameter>",
    "\n",
    "\n\n",
    " ",
    "{",
    "}",
    "\"",
    "\\",
    ":",
    ",",
    "[",
    "]",
    "7",
    "true",
    "{\"name\": \"f\", \"arguments\": {",
    "{\"arguments\": {\"s\": 1}, ",
    "\"name\": \"f\"",
    "\"arguments\": ",
    "}}",
    "text",
    "\xC3\xA9",
    "\xF0\x9F\x98\x80",
    "<",
    "</",
    "<tool",
    "</para",
    "\r\n",
    "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n"
    "</tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n"
    "</tool_call>",
    "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"more\": {\"name\": "
    "-1.5}, "
    "\"id\": \"x\"}</tool_call>",
    "<tool_call>{\"arguments\": {\"n\": 1}, \"id\": 7, \"name\": \"f\", "
    "\"more\": [null]",
    "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"mo"};

std::string RandomAnswer(std::mt19937* random) {
  std::string text;
  const auto parts = (*random)() % 24;
  for (std::uint32_t i = 0; i < parts; ++i) {
    text += kParts[(*random)() % std::size(kParts)];
  }
  return text;
}

std::vector<Piece> ParseInParts(const AnswerFormat& format,
                                std::string_view text, bool in_reasoning,
                                std::mt19937* random) {
  AnswerParser parser(format, in_reasoning, testing::TestTools());
  std::vector<Piece> pieces;
  const std::uint32_t most = 1 + (*random)() % 9;
  while (!text.empty()) {
    std::size_t bytes =
        std::min<std::size_t>(text.size(), 1 + (*random)() % most);
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
    testing::Add(parser.Push(text.substr(0, bytes)), &pieces);
    text.remove_prefix(bytes);
  }
  testing::Add(parser.Finish(), &pieces);
  return pieces;
}

// Tags and white space alone are not shown; JSON calls have more of it.
void CheckPieces(const std::vector<Piece>& pieces, const AnswerFormat& format,
                 const std::string& text) {
  std::string all;
  std::string arguments;
  for (const Piece& piece : pieces) {
    all += piece.raw;
    switch (piece.kind) {
      case PieceKind::kReasoning:
      case PieceKind::kContent:
        EXPECT_EQ(piece.text, piece.raw);
        break;
      case PieceKind::kArguments:
        if (format.calls == CallSyntax::kHermesJson && !piece.raw.empty()) {
          EXPECT_EQ(piece.text, piece.raw);
        }
        break;
      case PieceKind::kCall:
        EXPECT_NE(piece.text, "");
        break;
      case PieceKind::kMarkup:
        EXPECT_EQ(piece.text, "");
        break;
    }
  }
  EXPECT_EQ(all, text);
}

TEST(AnswerSplitTest, CutsChangeNothingAndNothingIsLost) {
  std::mt19937 random(1);
  int calls = 0;
  int whole = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = RandomAnswer(&random);
    const bool in_reasoning = random() % 4 == 0;
    for (const AnswerFormat& format :
         {testing::HermesFormat(), testing::XmlFormat()}) {
      const std::vector<Piece> pieces = Parse(format, text, in_reasoning);
      CheckPieces(pieces, format, text);
      EXPECT_EQ(ParseInParts(format, text, in_reasoning, &random), pieces)
          << text;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (pieces[i].kind != PieceKind::kCall) continue;
        ++calls;
        whole += i + 1 < pieces.size() && IsJsonValue(pieces[i + 1].text);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(calls, 5000);
  EXPECT_GT(whole, 1000);
}

}  // namespace
}  // namespace holdfast::answer
