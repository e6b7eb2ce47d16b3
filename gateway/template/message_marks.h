// Where messages start in a prompt, learned from the template's behaviour
// alone: message anchors of the engine hang on it.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_MESSAGE_MARKS_H_
#define HOLDFAST_GATEWAY_TEMPLATE_MESSAGE_MARKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/template/chat_template.h"

namespace holdfast::gateway {
class Tokenizer;
}  // namespace holdfast::gateway

namespace holdfast::templates {

enum class Role { kSystem, kUser, kAssistant, kTool };

struct MessageMark {
  std::uint32_t position_tokens = 0;  // the first token of the role's header
  Role role = Role::kUser;
  bool operator==(const MessageMark&) const = default;
};

// The token sequences that open each role's turn. A value; const methods are
// thread-safe.
class MessageMarks {
 public:
  // Marks nothing.
  MessageMarks() = default;

  // Renders probe conversations. A template whose headers cannot be told from
  // text (no special token in them) or that rewrites earlier turns of plain
  // conversations gives marks that mark nothing, and problem() says why.
  static MessageMarks Learn(const ChatTemplate& chat_template,
                            const gateway::Tokenizer& tokenizer);

  // Ascending positions. Text that was protected (ProtectSpecials) is never
  // marked: every header holds a special token.
  std::vector<MessageMark> Find(std::span<const std::uint32_t> ids) const;

  bool empty() const { return headers_.empty(); }
  // Why nothing is marked, or which role is not; empty when all are.
  const std::string& problem() const { return problem_; }
  // How many tokens open an answer; 0: they are not marked.
  std::size_t answer_header_tokens() const;
  // The token by which the template ends an assistant's turn; absent where the
  // probes did not show one of the tokenizer's eos ids.
  std::optional<std::uint32_t> end_of_turn() const { return end_of_turn_; }

 private:
  struct Header {
    Role role;
    std::vector<std::uint32_t> ids;
  };
  void Add(Role role, const absl::StatusOr<std::vector<std::uint32_t>>& ids);
  // That Find gives the messages of whole conversations.
  absl::Status Check(const ChatTemplate& chat_template,
                     const gateway::Tokenizer& tokenizer,
                     bool with_system) const;
  void LearnEndOfTurn(const ChatTemplate& chat_template,
                      const gateway::Tokenizer& tokenizer);

  std::vector<Header> headers_;  // longest first
  std::string problem_;
  std::optional<std::uint32_t> end_of_turn_;
};

}  // namespace holdfast::templates

#endif  // HOLDFAST_GATEWAY_TEMPLATE_MESSAGE_MARKS_H_
