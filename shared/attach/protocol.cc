#include "shared/attach/protocol.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace holdfast::attach {
namespace {

template <typename Message>
Message Copy(std::span<const std::byte> bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// Empty when the header announces `kind` in this version with the size that
// the packet has; else what is wrong.
std::string HeaderFault(std::span<const std::byte> bytes, MessageKind kind,
                        std::size_t size) {
  if (bytes.size() < sizeof(Header))
    return fmt::format("{} bytes are no message", bytes.size());
  const auto header = Copy<Header>(bytes);
  if (header.magic != kMagic)
    return fmt::format("magic {:#010x} is not the attach protocol's",
                       header.magic);
  if (header.kind != kind)
    return fmt::format("message kind {}, expected {}",
                       static_cast<int>(header.kind), static_cast<int>(kind));
  if (header.message_bytes != size || bytes.size() != size)
    return fmt::format("{} bytes that announce {}, expected {}", bytes.size(),
                       header.message_bytes, size);
  return "";
}

// The version of a packet with our magic; 0 for anything else.
std::uint16_t VersionOf(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Header)) return 0;
  const auto header = Copy<Header>(bytes);
  return header.magic == kMagic ? header.version : 0;
}

Refusal Decode(const Refused& message) {
  const auto end =
      std::find(message.detail.begin(), message.detail.end(), '\0');
  return {.reason = message.reason,
          .attached_pid = message.attached_pid,
          .detail = std::string(message.detail.begin(), end)};
}

}  // namespace

std::string_view RefusalName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kMalformed:
      return "malformed";
    case RefusalReason::kVersion:
      return "version";
    case RefusalReason::kCredentials:
      return "credentials";
    case RefusalReason::kBusy:
      return "busy";
    case RefusalReason::kDraining:
      return "draining";
    case RefusalReason::kArena:
      return "arena";
    case RefusalReason::kTooLate:
      return "too_late";
  }
  return "unknown";  // a later version's
}

Refused Encode(const Refusal& refusal) {
  Refused message;
  message.reason = refusal.reason;
  message.attached_pid = refusal.attached_pid;
  const std::size_t length =
      std::min(refusal.detail.size(), message.detail.size() - 1);
  std::copy_n(refusal.detail.begin(), length, message.detail.begin());
  return message;
}

std::variant<Hello, Refusal> ParseHello(std::span<const std::byte> bytes) {
  const std::uint16_t version = VersionOf(bytes);
  if (version != 0 && version != kVersion) {
    return Refusal{.reason = RefusalReason::kVersion,
                   .detail = fmt::format("attach protocol version {}; this "
                                         "cache service speaks {}",
                                         version, kVersion)};
  }
  if (std::string fault =
          HeaderFault(bytes, MessageKind::kHello, sizeof(Hello));
      !fault.empty()) {
    return Refusal{.reason = RefusalReason::kMalformed,
                   .detail = "hello: " + fault};
  }
  return Copy<Hello>(bytes);
}

absl::StatusOr<std::variant<Accepted, Refusal>> ParseAnswer(
    std::span<const std::byte> bytes) {
  // A refusal is the same in every version: it may tell us of ours.
  if (HeaderFault(bytes, MessageKind::kRefused, sizeof(Refused)).empty())
    return Decode(Copy<Refused>(bytes));
  const std::uint16_t version = VersionOf(bytes);
  if (version != 0 && version != kVersion) {
    return absl::FailedPreconditionError(
        fmt::format("attach answer: protocol version {}; this engine speaks {}",
                    version, kVersion));
  }
  if (std::string fault =
          HeaderFault(bytes, MessageKind::kAccepted, sizeof(Accepted));
      !fault.empty()) {
    return absl::InvalidArgumentError("attach answer: " + fault);
  }
  const auto accepted = Copy<Accepted>(bytes);
  if (accepted.epoch == 0 || accepted.staging_slots == 0 ||
      accepted.staging_bytes % accepted.staging_slots != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "attach answer: epoch {:016x}, {} staging bytes in {} slots",
        accepted.epoch, accepted.staging_bytes, accepted.staging_slots));
  }
  return accepted;
}

}  // namespace holdfast::attach
