#include "gateway/answer/sent_form.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::answer {
namespace {

using align::HiddenKind;

// "text|begin-end begin-end" of its gaps.
std::string Show(const align::SentText& sent) {
  std::string text = sent.text + "|";
  for (const auto& gap : sent.gaps) {
    text += std::to_string(gap.begin) + "-" + std::to_string(gap.end) + " ";
  }
  return text;
}
std::string ShowHidden(const align::Turn& turn) {
  std::string text;
  for (const align::HiddenSpan& span : turn.hidden) {
    text += std::to_string(static_cast<int>(span.kind)) + ":" +
            std::to_string(span.begin) + "-" + std::to_string(span.end) + " ";
  }
  return text;
}

class SentFormTest : public ::testing::Test {
 protected:
  void Token(const std::string& text,
             std::optional<HiddenKind> hidden = std::nullopt) {
    const bool blank =
        !text.empty() && text.find_first_not_of(" \n") == std::string::npos;
    form_.Token(text.size(), blank, hidden);
  }
  void Piece(PieceKind kind, const std::string& text, std::string raw = "") {
    if (raw.empty()) raw = text;
    form_.Pieces(std::vector{
        answer::Piece{kind, kind == PieceKind::kMarkup ? "" : text, raw}});
  }
  align::Turn Finish(bool ended = true) {
    return form_.Finish({.begin = 8, .prompt = 10, .ended = ended});
  }

  SentForm form_;
};

TEST_F(SentFormTest, PlainText) {
  Token("Hel");
  Token("lo");
  Piece(PieceKind::kContent, "Hello");
  Token("", HiddenKind::kEndOfTurn);
  const align::Turn turn = Finish();
  EXPECT_EQ(turn.begin, 8u);
  EXPECT_EQ(turn.opening_end, 10u);
  EXPECT_EQ(turn.end, 12u);  // without the token that ends the turn
  EXPECT_EQ(turn.content.text, "Hello");
  EXPECT_EQ(turn.reasoning_end, 0u);
  EXPECT_TRUE(turn.hidden.empty());
}

TEST_F(SentFormTest, CutByLengthTheLastTokenComesBack) {
  Token("Hel");
  Token("lo");
  Piece(PieceKind::kContent, "Hello");
  EXPECT_EQ(Finish().end, 12u);
  EXPECT_EQ(Finish().content.text, "Hello");
}

TEST_F(SentFormTest, ReasoningAndCalls) {
  Token("<think>");
  Token("Hm");
  Token("</think>");
  form_.ReasoningEnds();
  Token("Yes");
  Token("<tool_call>...");
  Piece(PieceKind::kMarkup, "<think>");
  Piece(PieceKind::kReasoning, "Hm");
  Piece(PieceKind::kMarkup, "</think>");
  Piece(PieceKind::kContent, "Yes");
  Piece(PieceKind::kMarkup, "<tool_call>");
  Piece(PieceKind::kCall, "f", "f");
  Piece(PieceKind::kArguments, "{}", "..");
  const align::Turn turn = Finish();
  EXPECT_EQ(turn.reasoning.text, "Hm");
  EXPECT_EQ(turn.content.text, "Yes");
  ASSERT_EQ(turn.calls.size(), 1u);
  EXPECT_EQ(turn.calls[0].name, "f");
  EXPECT_EQ(turn.calls[0].arguments, "{}");
  EXPECT_EQ(turn.reasoning_end, 13u);
  EXPECT_EQ(turn.end, 15u);
}

TEST_F(SentFormTest, AHiddenTokenInTheMiddle) {
  Token("a");
  Token(" \n");
  Token("", HiddenKind::kEndOfTurn);
  Token(" ");
  Token("b");
  Piece(PieceKind::kContent, "a \n b");
  const align::Turn turn = Finish();
  EXPECT_EQ(Show(turn.content), "a \n b|1-4 ");
  EXPECT_EQ(ShowHidden(turn), "2:12-13 ");
  EXPECT_EQ(turn.end, 15u);
}

TEST_F(SentFormTest, WhiteSpaceElsewhereIsNotLoose) {
  Token("a");
  Token(" ");
  Token("b");
  Token("", HiddenKind::kEndOfTurn);
  Token("c");
  Token(" ");
  Token("d");
  Piece(PieceKind::kContent, "a bc d");
  EXPECT_EQ(Show(Finish().content), "a bc d|3-3 ");
}

TEST_F(SentFormTest, TheBudgetsWordsBetweenReasoningAndContent) {
  Token("Hm");
  Token("\n");
  Token("", HiddenKind::kThinkingBudget);
  Token("</think>", HiddenKind::kThinkingBudget);
  form_.ReasoningEnds();
  Token("\n\n");
  Token("Yes");
  Piece(PieceKind::kReasoning, "Hm");
  Piece(PieceKind::kMarkup, "\n</think>\n\n");
  Piece(PieceKind::kContent, "Yes");
  const align::Turn turn = Finish();
  EXPECT_EQ(Show(turn.reasoning), "Hm|2-2 ");
  EXPECT_EQ(Show(turn.content), "Yes|0-0 ");
  EXPECT_EQ(ShowHidden(turn), "0:12-14 ");
  EXPECT_EQ(turn.reasoning_end, 14u);
}

TEST_F(SentFormTest, AStopStringIsWithheld) {
  Token("Yes");
  Token("\n");
  Token("User");
  Token(":");
  Piece(PieceKind::kContent, "Yes");  // stop: "\nUser:"
  const align::Turn turn = Finish();
  EXPECT_EQ(Show(turn.content), "Yes|3-3 ");
  EXPECT_EQ(turn.end, 13u);  // what was forwarded
  EXPECT_EQ(ShowHidden(turn), "1:11-13 ");
}

TEST_F(SentFormTest, AStopStringInsideAToken) {
  Token("Yes");
  Token(" U:");
  Piece(PieceKind::kContent, "Yes ");  // stop: "U:"
  const align::Turn turn = Finish();
  EXPECT_EQ(Show(turn.content), "Yes |3-4 ");
  EXPECT_EQ(turn.end, 12u);  // the client has some of the last token
}

TEST_F(SentFormTest, TextOfATokenThatIsHiddenInPart) {
  Token("Yes");
  Token(" ");
  Token("x \nU:");
  Piece(PieceKind::kContent, "Yes x \n");  // stop: "U:"
  EXPECT_EQ(Show(Finish().content), "Yes x \n|5-7 ");
}

TEST_F(SentFormTest, TextThatCameLate) {
  Token("a");
  Token("");
  form_.MoreText(3);
  Piece(PieceKind::kContent, "a\xEF\xBF\xBD");
  const align::Turn turn = Finish();
  EXPECT_EQ(turn.content.text, "a\xEF\xBF\xBD");
  EXPECT_EQ(turn.end, 12u);
  EXPECT_TRUE(turn.hidden.empty());
}

TEST_F(SentFormTest, CutByTheClient) {
  Token("a");
  Token("b");
  Piece(PieceKind::kContent, "ab");
  EXPECT_EQ(Finish(/*ended=*/false).end, 12u);
}

}  // namespace
}  // namespace holdfast::answer
