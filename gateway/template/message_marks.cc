#include "gateway/template/message_marks.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::templates {
namespace {

using Ids = std::vector<std::uint32_t>;

// Words that no template prints by itself.
constexpr const char* kSystemText = "northern pier";
constexpr const char* kUserText = "violet kite";
constexpr const char* kAnswerText = "amber lamp";
constexpr const char* kNextText = "hollow reed";
constexpr const char* kToolText = "copper bell";
constexpr const char* kArgument = "granite step";

Json Message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

Json ToolCallMessage() {
  Json message = Message("assistant", "");
  // Nine letters or digits: some templates insist.
  message["tool_calls"] = {
      {{"id", "call00001"},
       {"type", "function"},
       {"function",
        {{"name", "look_up"}, {"arguments", {{"place", kArgument}}}}}}};
  return message;
}

Json ToolMessage() {
  Json message = Message("tool", kToolText);
  message["name"] = "look_up";
  message["tool_call_id"] = "call00001";
  return message;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

void KeepCommonPrefix(const Ids& other, Ids* ids) {
  const auto end =
      std::mismatch(ids->begin(), ids->end(), other.begin(), other.end()).first;
  ids->erase(end, ids->end());
}

const char* Name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "";
}

// Renders conversations and cuts out what stands around their texts.
class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const gateway::Tokenizer& tokenizer)
      : template_(chat_template), tokenizer_(tokenizer) {}

  absl::StatusOr<std::string> Render(std::initializer_list<Json> messages,
                                     bool generation_prompt) const {
    RenderInput input;
    for (const Json& message : messages) input.messages.push_back(message);
    input.add_generation_prompt = generation_prompt;
    return template_.Render(input);
  }

  // What follows `text` to the end of the rendering.
  static absl::StatusOr<std::string> After(
      const absl::StatusOr<std::string>& rendering, std::string_view text) {
    if (!rendering.ok()) return rendering.status();
    const std::size_t at = rendering->rfind(text);
    if (at == std::string::npos) return Lost(text);
    return rendering->substr(at + text.size());
  }

  // What stands between two texts, less the `closer` of the first.
  static absl::StatusOr<std::string> Opener(
      const absl::StatusOr<std::string>& rendering, std::string_view before,
      const absl::StatusOr<std::string>& closer, std::string_view text) {
    if (!rendering.ok()) return rendering.status();
    if (!closer.ok()) return closer.status();
    const std::size_t first = rendering->rfind(before);
    if (first == std::string::npos) return Lost(before);
    const std::size_t gap = first + before.size();
    const std::size_t next = rendering->find(text, gap);
    if (next == std::string::npos) return Lost(text);
    const std::string between = rendering->substr(gap, next - gap);
    if (!between.starts_with(*closer)) {
      return absl::NotFoundError("an earlier turn ends differently");
    }
    return between.substr(closer->size());
  }

  // The ids of the header; an error when no added token is among them, since
  // text could then look like it.
  absl::StatusOr<Ids> Header(const absl::StatusOr<std::string>& opener) const {
    if (!opener.ok()) return opener.status();
    const auto trimmed = Trimmed(*opener);
    absl::StatusOr<Ids> ids =
        tokenizer_.Encode(trimmed, gateway::EncodeOptions{});
    if (ids.ok() && !HasAdded(*ids)) {
      return absl::NotFoundError("no special token opens the turn");
    }
    return ids;
  }

  bool HasAdded(const Ids& ids) const {
    return std::any_of(ids.begin(), ids.end(), [this](std::uint32_t id) {
      return tokenizer_.IsAdded(id);
    });
  }

 private:
  static absl::Status Lost(std::string_view text) {
    return absl::NotFoundError(
        fmt::format("the template does not print the text \"{}\"", text));
  }

  const ChatTemplate& template_;
  const gateway::Tokenizer& tokenizer_;
};

absl::StatusOr<Ids> UserHeader(const Probe& probe) {
  const auto closer = Probe::After(
      probe.Render(
          {Message("user", kUserText), Message("assistant", kAnswerText)},
          false),
      kAnswerText);
  const auto longer = probe.Render(
      {Message("user", kUserText), Message("assistant", kAnswerText),
       Message("user", kNextText)},
      false);
  return probe.Header(Probe::Opener(longer, kAnswerText, closer, kNextText));
}

// Templates print more into the header of the last answer, or of the one to
// come (an empty or an open think block): what is common opens every one.
absl::StatusOr<Ids> AssistantHeader(const Probe& probe) {
  const Json user = Message("user", kUserText);
  const Json answer = Message("assistant", kAnswerText);
  const auto closer = Probe::After(probe.Render({user}, false), kUserText);
  absl::StatusOr<Ids> header = probe.Header(Probe::Opener(
      probe.Render({user, answer}, false), kUserText, closer, kAnswerText));
  if (!header.ok()) return header;
  const auto earlier = probe.Header(Probe::Opener(
      probe.Render({user, answer, Message("user", kNextText)}, false),
      kUserText, closer, kAnswerText));
  if (!earlier.ok()) return earlier;
  KeepCommonPrefix(*earlier, &*header);

  auto prompt = Probe::After(probe.Render({user}, true), kUserText);
  if (!prompt.ok()) return prompt.status();
  if (!prompt->starts_with(*closer)) {
    return absl::NotFoundError("the generation prompt replaces the turn's end");
  }
  const auto coming = probe.Header(prompt->substr(closer->size()));
  if (!coming.ok()) return coming;
  KeepCommonPrefix(*coming, &*header);
  if (!probe.HasAdded(*header)) {
    return absl::NotFoundError("answers are opened in different ways");
  }
  return header;
}

// The first line only: a default text or today's date may follow.
absl::StatusOr<Ids> SystemHeader(const Probe& probe) {
  const auto rendering = probe.Render(
      {Message("system", kSystemText), Message("user", kUserText)}, false);
  if (!rendering.ok()) return rendering.status();
  const std::size_t text = rendering->find(kSystemText);
  if (text == std::string::npos) {
    return absl::NotFoundError("the template does not print it");
  }
  return probe.Header(
      rendering->substr(0, std::min(text, rendering->find('\n'))));
}

// `text` is printed last in the turn `before`.
absl::StatusOr<Ids> ToolHeaderAfter(const Probe& probe, const Json& before,
                                    const char* text) {
  const Json user = Message("user", kUserText);
  const auto closer = Probe::After(probe.Render({user, before}, false), text);
  return probe.Header(
      Probe::Opener(probe.Render({user, before, ToolMessage()}, false), text,
                    closer, kToolText));
}

// Tool messages answer a call; templates that print no calls take them after
// any answer.
absl::StatusOr<Ids> ToolHeader(const Probe& probe) {
  absl::StatusOr<Ids> header =
      ToolHeaderAfter(probe, ToolCallMessage(), kArgument);
  if (header.ok()) return header;
  return ToolHeaderAfter(probe, Message("assistant", kAnswerText), kAnswerText);
}

}  // namespace

std::vector<MessageMark> MessageMarks::Find(
    std::span<const std::uint32_t> ids) const {
  std::vector<MessageMark> marks;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (const Header& header : headers_) {
      if (header.ids.size() <= ids.size() - i &&
          std::equal(header.ids.begin(), header.ids.end(), ids.begin() + i)) {
        marks.push_back({static_cast<std::uint32_t>(i), header.role});
        break;
      }
    }
  }
  return marks;
}

std::size_t MessageMarks::answer_header_tokens() const {
  for (const Header& header : headers_) {
    if (header.role == Role::kAssistant) return header.ids.size();
  }
  return 0;
}

absl::Status MessageMarks::Check(const ChatTemplate& chat_template,
                                 const gateway::Tokenizer& tokenizer,
                                 bool with_system) const {
  // Beginnings that could melt into the end of a header.
  for (const char* start : {"", "\n\n", " ", "7", ":"}) {
    RenderInput input;
    std::vector<Role> expected;
    const auto add = [&](const char* name, Role role) {
      input.messages.push_back(
          Message(name, fmt::format("{}{}", start, kUserText)));
      expected.push_back(role);
    };
    if (with_system) add("system", Role::kSystem);
    add("user", Role::kUser);
    add("assistant", Role::kAssistant);
    add("user", Role::kUser);
    expected.push_back(Role::kAssistant);  // the generation prompt
    const auto rendering = chat_template.Render(input);
    if (!rendering.ok()) return rendering.status();
    const auto ids = tokenizer.Encode(*rendering, gateway::EncodeOptions{});
    if (!ids.ok()) return ids.status();
    std::vector<Role> found;
    for (const MessageMark& mark : Find(*ids)) {
      // A default system text that comes before the conversation.
      if (!with_system && mark.role == Role::kSystem) continue;
      found.push_back(mark.role);
    }
    if (found != expected) {
      return absl::NotFoundError("learned headers do not match a conversation");
    }
  }
  return absl::OkStatus();
}

void MessageMarks::Add(Role role, const absl::StatusOr<Ids>& ids) {
  const auto complain = [&](std::string_view what) {
    if (!problem_.empty()) problem_ += "; ";
    problem_ += fmt::format("{}: {}", Name(role), what);
  };
  if (!ids.ok()) return complain(std::string(ids.status().message()));
  for (const Header& header : headers_) {
    if (header.ids == *ids) {
      return complain(fmt::format("opened as {} is", Name(header.role)));
    }
  }
  headers_.push_back({role, *ids});
}

MessageMarks MessageMarks::Learn(const ChatTemplate& chat_template,
                                 const gateway::Tokenizer& tokenizer) {
  const Probe probe(chat_template, tokenizer);
  MessageMarks marks;
  marks.Add(Role::kUser, UserHeader(probe));
  marks.Add(Role::kAssistant, AssistantHeader(probe));
  const bool complete = marks.headers_.size() == 2;
  const auto system = SystemHeader(probe);
  marks.Add(Role::kSystem, system);
  marks.Add(Role::kTool, ToolHeader(probe));
  std::stable_sort(marks.headers_.begin(), marks.headers_.end(),
                   [](const Header& a, const Header& b) {
                     return a.ids.size() > b.ids.size();
                   });
  if (complete) {
    const absl::Status checked =
        marks.Check(chat_template, tokenizer, system.ok());
    if (!checked.ok()) {
      marks.headers_.clear();
      marks.problem_ = std::string(checked.message());
    }
  } else {
    marks.headers_.clear();
  }
  marks.LearnEndOfTurn(chat_template, tokenizer);
  return marks;
}

void MessageMarks::LearnEndOfTurn(const ChatTemplate& chat_template,
                                  const gateway::Tokenizer& tokenizer) {
  const Probe probe(chat_template, tokenizer);
  const auto closer = Probe::After(
      probe.Render(
          {Message("user", kUserText), Message("assistant", kAnswerText)},
          false),
      kAnswerText);
  if (!closer.ok()) return;
  const auto ids = tokenizer.Encode(*closer, gateway::EncodeOptions{});
  if (!ids.ok()) return;
  const auto end =
      std::find_if(ids->begin(), ids->end(),
                   [&](std::uint32_t id) { return tokenizer.IsEos(id); });
  if (end != ids->end()) end_of_turn_ = *end;
}

}  // namespace holdfast::templates
