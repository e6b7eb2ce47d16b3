// What the parts of a model's answer are.
#ifndef HOLDFAST_GATEWAY_ANSWER_PIECE_H_
#define HOLDFAST_GATEWAY_ANSWER_PIECE_H_

#include <string>
#include <string_view>
#include <vector>

namespace holdfast::answer {

enum class PieceKind {
  kReasoning,
  kContent,
  kCall,       // a tool call begins; the text is the function's name
  kArguments,  // more of its arguments: JSON, the call's texts put together
  kMarkup,     // tags, and the white space beside them: no text
};

struct Piece {
  PieceKind kind = PieceKind::kContent;
  std::string text;  // what the client gets; may be empty
  // The part of the answer that it stands for. All of them together are the
  // answer, byte for byte.
  std::string raw;

  bool operator==(const Piece&) const = default;
};

// Adds to the last piece where that is of the same kind; a call never is.
inline void Append(PieceKind kind, std::string_view text, std::string_view raw,
                   std::vector<Piece>* pieces) {
  if (text.empty() && raw.empty()) return;
  if (pieces->empty() || pieces->back().kind != kind ||
      kind == PieceKind::kCall) {
    pieces->push_back({kind, "", ""});
  }
  pieces->back().text += text;
  pieces->back().raw += raw;
}

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_PIECE_H_
