#include "gateway/answer/sent_form.h"

#include <algorithm>

#include "gateway/answer/call_reader.h"

namespace holdfast::answer {

void SentForm::Token(std::size_t bytes, bool blank,
                     std::optional<align::HiddenKind> hidden) {
  const std::size_t begin = tokens_.empty() ? 0 : tokens_.back().end;
  tokens_.push_back({begin, begin + bytes, blank, hidden});
}

void SentForm::MoreText(std::size_t bytes) {
  if (tokens_.empty() || bytes == 0) return;
  tokens_.back().end += bytes;
  tokens_.back().blank = false;
}

void SentForm::Add(const Piece& piece, Text* text) {
  const std::size_t begin = sent_.size();
  if (!text->runs.empty() && text->runs.back().end == begin) {
    text->runs.back().end += piece.raw.size();
  } else {
    text->runs.push_back({begin, begin + piece.raw.size(), text->text.size()});
  }
  text->text += piece.text;
}

void SentForm::Pieces(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    switch (piece.kind) {
      case PieceKind::kReasoning:
        Add(piece, &reasoning_);
        break;
      case PieceKind::kContent:
        Add(piece, &content_);
        break;
      case PieceKind::kCall:
        calls_.push_back({piece.text, ""});
        break;
      case PieceKind::kArguments:
        calls_.back().arguments += piece.text;
        break;
      case PieceKind::kMarkup:
        break;
    }
    sent_ += piece.raw;
  }
}

// Text that never came in a piece was withheld by a stop string.
std::vector<SentForm::TokenText> SentForm::WithWithheld() const {
  std::vector<TokenText> tokens = tokens_;
  for (TokenText& token : tokens) {
    if (!token.hidden && token.begin < token.end && token.end > sent_.size()) {
      token.hidden = align::HiddenKind::kStopString;
    }
  }
  return tokens;
}

std::size_t SentForm::LastSpace(const TokenText& token) const {
  std::size_t at = sent_.size();
  while (at > token.begin && IsSpace(sent_[at - 1])) --at;
  return at;
}

std::vector<SentForm::Gap> SentForm::Gaps(
    const std::vector<TokenText>& tokens) const {
  std::vector<Gap> gaps;
  const auto loose = [&](std::size_t i) {
    return tokens[i].hidden.has_value() || tokens[i].blank;
  };
  // The client got text of it: what is before is not next to the hidden part.
  const auto cut = [&](std::size_t i) {
    return tokens[i].hidden && tokens[i].begin < sent_.size() &&
           sent_.size() < tokens[i].end &&
           LastSpace(tokens[i]) > tokens[i].begin;
  };
  for (std::size_t i = 0; i < tokens.size();) {
    std::size_t end = i;
    bool hidden = false;
    for (; end < tokens.size() && loose(end) && (end == i || !cut(end));
         ++end) {
      hidden = hidden || tokens[end].hidden.has_value();
    }
    if (hidden) {
      const std::size_t begin = cut(i) ? LastSpace(tokens[i]) : tokens[i].begin;
      gaps.push_back({std::min(begin, sent_.size()),
                      std::min(tokens[end - 1].end, sent_.size())});
    }
    i = std::max(end, i + 1);
  }
  return gaps;
}

align::SentText SentForm::Sent(const Text& text, const std::vector<Gap>& gaps) {
  align::SentText sent{.text = text.text, .gaps = {}};
  for (const Run& run : text.runs) {
    for (const Gap& gap : gaps) {
      const std::size_t begin = std::max(gap.begin, run.begin);
      const std::size_t end = std::min(gap.end, run.end);
      if (begin > end) continue;  // they touch when equal
      const align::SentText::Gap found{run.at + begin - run.begin,
                                       run.at + end - run.begin};
      if (!sent.gaps.empty() && found.begin <= sent.gaps.back().end) {
        sent.gaps.back().end = std::max(sent.gaps.back().end, found.end);
      } else {
        sent.gaps.push_back(found);
      }
    }
  }
  return sent;
}

align::Turn SentForm::Finish(const Where& where) const {
  const std::vector<TokenText> tokens = WithWithheld();
  align::Turn turn{
      .begin = where.begin,
      .opening_end = where.prompt,
      .end = where.prompt + tokens.size(),
      .reasoning_end = reasoning_end_ == 0 ? 0 : where.prompt + reasoning_end_,
      .reasoning = {},
      .content = {},
      .calls = calls_,
      .hidden = {}};
  // The last token was not forwarded: it need not come back when the client
  // got nothing of it.
  if (where.ended && !tokens.empty() && tokens.back().hidden &&
      tokens.back().begin >= sent_.size()) {
    --turn.end;
  }
  for (std::size_t i = 0; where.prompt + i < turn.end; ++i) {
    if (!tokens[i].hidden) continue;
    const std::size_t at = where.prompt + i;
    if (!turn.hidden.empty() && turn.hidden.back().end == at &&
        turn.hidden.back().kind == *tokens[i].hidden) {
      ++turn.hidden.back().end;
    } else {
      turn.hidden.push_back({*tokens[i].hidden, at, at + 1});
    }
  }
  const std::vector<Gap> gaps = Gaps(tokens);
  turn.reasoning = Sent(reasoning_, gaps);
  turn.content = Sent(content_, gaps);
  return turn;
}

}  // namespace holdfast::answer
