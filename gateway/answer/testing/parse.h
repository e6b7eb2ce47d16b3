// What the tests of the answer parser share.
#ifndef HOLDFAST_GATEWAY_ANSWER_TESTING_PARSE_H_
#define HOLDFAST_GATEWAY_ANSWER_TESTING_PARSE_H_

#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/answer/answer_parser.h"

namespace holdfast::answer::testing {

inline AnswerFormat HermesFormat() {
  AnswerFormat format;
  format.reasoning = true;
  format.calls = CallSyntax::kHermesJson;
  return format;
}

inline AnswerFormat XmlFormat() {
  AnswerFormat format;
  format.reasoning = true;
  format.calls = CallSyntax::kQwenXml;
  format.before_call = "\n\n";
  return format;
}

// f(s: string, n: integer, b: boolean, o: object) and g().
inline std::shared_ptr<const Tools> TestTools() {
  return std::make_shared<Tools>(Json::parse(R"([
      {"type":"function","function":{"name":"f","parameters":{
        "type":"object","properties":{
          "s":{"type":"string"},"n":{"type":"integer"},
          "b":{"type":"boolean"},"o":{"type":"object"}}}}},
      {"type":"function","function":{"name":"g"}}])"));
}

// Puts pieces together that were cut only because the text was.
inline void Add(std::vector<Piece> more, std::vector<Piece>* pieces) {
  for (const Piece& piece : more) {
    Append(piece.kind, piece.text, piece.raw, pieces);
  }
}

inline std::vector<Piece> Parse(const AnswerFormat& format,
                                std::string_view text, bool in_reasoning) {
  AnswerParser parser(format, in_reasoning, TestTools());
  std::vector<Piece> pieces = parser.Push(text);
  Add(parser.Finish(), &pieces);
  return pieces;
}

// What the client sees: "R[reasoning] C[content] F[function] A[arguments]".
inline std::string Show(const std::vector<Piece>& pieces) {
  std::string shown;
  for (const Piece& piece : pieces) {
    if (piece.text.empty()) continue;
    if (!shown.empty()) shown += ' ';
    shown += "RCFAM"[static_cast<int>(piece.kind)];
    shown += '[' + piece.text + ']';
  }
  return shown;
}

}  // namespace holdfast::answer::testing

#endif  // HOLDFAST_GATEWAY_ANSWER_TESTING_PARSE_H_
