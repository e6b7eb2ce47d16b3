#include "gateway/openai/align_prompt.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gateway/answer/answer_parser.h"
#include "gateway/openai/json.h"
#include "gateway/tokenizer/tokenizer.h"
#include "shared/align/json_equal.h"

namespace holdfast::openai {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view TrimmedEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}
std::string_view Trimmed(std::string_view text) {
  text = TrimmedEnd(text);
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}
std::string WithoutSpace(std::string_view text) {
  std::string rest;
  for (const char c : text) {
    if (kSpace.find(c) == std::string_view::npos) rest += c;
  }
  return rest;
}

std::string TextOf(const Json& message, const char* field) {
  const auto at = message.find(field);
  return at != message.end() && at->is_string() ? at->get<std::string>() : "";
}

// As the client wrote them, not as they were parsed.
std::string RawArguments(const Json& body, std::size_t message,
                         std::size_t call, const Json& parsed) {
  const Json::json_pointer place(fmt::format(
      "/messages/{}/tool_calls/{}/function/arguments", message, call));
  if (body.contains(place) && body[place].is_string()) {
    return body[place].get<std::string>();
  }
  return parsed.is_string() ? parsed.get<std::string>() : Dump(parsed);
}

align::ClientAnswer AnswerOf(const Json& message, const Json& body,
                             std::size_t index) {
  align::ClientAnswer answer{.reasoning = TextOf(message, "reasoning_content"),
                             .content = TextOf(message, "content"),
                             .calls = {}};
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return answer;
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const Json& function = (*calls)[i]["function"];
    answer.calls.push_back(
        {function["name"].get<std::string>(),
         RawArguments(body, index, i, function["arguments"])});
  }
  return answer;
}

// An answer of the client, and where it is in the rendering.
struct Copy {
  std::size_t message = 0;  // of the request
  align::ClientAnswer answer;
  std::size_t begin = 0;  // of its tokens in the prompt
  std::size_t end = 0;
};

// Nothing when messages and marks do not agree.
std::optional<std::vector<Copy>> FindCopies(const ChatRequest& request,
                                            const Json& body,
                                            const BuiltPrompt& prompt,
                                            const PromptParts& parts) {
  const std::size_t header = parts.marks->answer_header_tokens();
  const auto end_of_turn = parts.marks->end_of_turn();
  if (header == 0 || !end_of_turn) return std::nullopt;
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    const Json& message = request.messages[i];
    if (message["role"] != "assistant") continue;
    copies.push_back({i, AnswerOf(message, body, i), 0, 0});
  }
  std::size_t found = 0;
  for (std::size_t i = 0; i < prompt.messages.size(); ++i) {
    if (prompt.messages[i].role != templates::Role::kAssistant) continue;
    if (i + 1 == prompt.messages.size()) break;  // the answer to come
    if (found == copies.size()) return std::nullopt;
    Copy& copy = copies[found++];
    copy.begin = prompt.messages[i].position_tokens + header;
    copy.end = prompt.messages[i + 1].position_tokens;
    while (copy.end > copy.begin && prompt.ids[copy.end - 1] != *end_of_turn) {
      --copy.end;
    }
    if (copy.end <= copy.begin) return std::nullopt;
    --copy.end;
  }
  if (found != copies.size()) return std::nullopt;
  return copies;
}

// Looks at what the template makes of the client's answers.
class Printing {
 public:
  Printing(const ChatRequest& request, const BuiltPrompt& prompt,
           const PromptParts& parts, const std::vector<Copy>& copies,
           const AlignOptions& options)
      : request_(request),
        prompt_(prompt),
        parts_(parts),
        copies_(copies),
        options_(options) {}

  align::Printed Of(const align::Record& record,
                    const align::ClientAnswer& answer,
                    const align::Turn& turn) {
    const auto copy = std::ranges::find_if(
        copies_, [&](const Copy& c) { return &c.answer == &answer; });
    const std::string text = parts_.tokenizer->Decode(
        std::span(prompt_.ids).subspan(copy->begin, copy->end - copy->begin),
        /*skip_special=*/false);
    if (turn.reasoning.text.empty()) {
      return {.text = PrintsText(text, answer) && Opens(text, record, turn),
              .reasoning = true};
    }
    const bool allowed =
        options_.without_reasoning || !answer.reasoning.empty();
    return {.text = PrintsText(text, answer),
            .reasoning = allowed && PrintsReasoning(copy->message)};
  }

 private:
  bool PrintsText(const std::string& text, const align::ClientAnswer& answer) {
    auto tools = std::make_shared<answer::Tools>(
        request_.tools.is_null() ? Json::array() : request_.tools);
    answer::AnswerParser parser(*parts_.format, /*in_reasoning=*/false,
                                std::move(tools));
    std::vector<answer::Piece> pieces = parser.Push(text);
    for (answer::Piece& piece : parser.Finish()) {
      pieces.push_back(std::move(piece));
    }
    std::string content;
    std::vector<align::Call> calls;
    for (const answer::Piece& piece : pieces) {
      if (piece.kind == answer::PieceKind::kContent) content += piece.text;
      if (piece.kind == answer::PieceKind::kCall)
        calls.push_back({piece.text, ""});
      if (piece.kind == answer::PieceKind::kArguments)
        calls.back().arguments += piece.text;
    }
    return Trimmed(content) == Trimmed(answer.content) &&
           std::ranges::equal(
               calls, answer.calls,
               [](const align::Call& a, const align::Call& b) {
                 return a.name == b.name &&
                        (a.arguments == b.arguments ||
                         align::EqualJson(a.arguments, b.arguments));
               });
  }

  // Without reasoning: the rendering has the think block that the turn has, an
  // empty one, or like it none.
  bool Opens(const std::string& text, const align::Record& record,
             const align::Turn& turn) const {
    const std::size_t end = std::max(turn.opening_end, turn.reasoning_end);
    std::vector<std::uint32_t> ids;
    for (std::size_t i = turn.begin; i < end; ++i) {
      const bool hidden =
          std::ranges::any_of(turn.hidden, [i](const align::HiddenSpan& span) {
            return span.begin <= i && i < span.end;
          });
      if (!hidden) ids.push_back(record.ids[i]);
    }
    const std::string opening =
        parts_.tokenizer->Decode(ids, /*skip_special=*/false);
    return WithoutSpace(text).starts_with(WithoutSpace(opening));
  }

  // Every answer gets reasoning that is nobody's; where it is printed, any
  // would be.
  bool PrintsReasoning(std::size_t message) {
    if (!probed_) {
      probed_ = true;
      ChatRequest probe;
      probe.messages = request_.messages;
      probe.tools = request_.tools;
      probe.template_kwargs = request_.template_kwargs;
      for (const Copy& copy : copies_) {
        probe.messages[copy.message]["reasoning_content"] =
            Marker(copy.message);
      }
      ApiOr<std::string> text = RenderText(probe, parts_);
      if (text.ok()) probe_ = *std::move(text);
    }
    const std::string marker = Marker(message);
    const std::size_t at = probe_.find(marker);
    if (at == std::string::npos) return false;
    const std::string_view text = probe_;
    return TrimmedEnd(text.substr(0, at)).ends_with(answer::kThink) &&
           Trimmed(text.substr(at + marker.size()))
               .starts_with(answer::kThinkEnd);
  }
  std::string Marker(std::size_t message) const {
    return fmt::format("probe {:016x} of message {}.", options_.random,
                       message);
  }

  const ChatRequest& request_;
  const BuiltPrompt& prompt_;
  const PromptParts& parts_;
  const std::vector<Copy>& copies_;
  const AlignOptions& options_;
  bool probed_ = false;
  std::string probe_;  // empty where the template refuses it
};

std::vector<align::Segment> SegmentsOf(const BuiltPrompt& prompt,
                                       const std::vector<Copy>& copies) {
  std::vector<align::Segment> segments;
  const std::span<const std::uint32_t> ids = prompt.ids;
  std::size_t at = 0;
  for (const Copy& copy : copies) {
    segments.push_back({ids.subspan(at, copy.begin - at), nullptr});
    segments.push_back(
        {ids.subspan(copy.begin, copy.end - copy.begin), &copy.answer});
    at = copy.end;
  }
  segments.push_back({ids.subspan(at), nullptr});
  return segments;
}

}  // namespace

std::optional<align::Alignment> AlignPrompt(
    const ChatRequest& request, const Json& body, const BuiltPrompt& prompt,
    const PromptParts& parts, RecordList records, const AlignOptions& options) {
  if (records.empty()) return std::nullopt;
  const auto copies = FindCopies(request, body, prompt, parts);
  if (!copies) return std::nullopt;
  const std::vector<align::Segment> segments = SegmentsOf(prompt, *copies);
  Printing printing(request, prompt, parts, *copies, options);
  std::optional<align::Alignment> best;
  for (const auto& record : records) {
    align::Alignment aligned = align::Align(
        *record, segments,
        [&](const align::ClientAnswer& answer, const align::Turn& turn) {
          return printing.Of(*record, answer, turn);
        });
    if (!best || aligned.matched > best->matched) best = std::move(aligned);
  }
  return best;
}

}  // namespace holdfast::openai
