// The messages of the attach socket, version 1: frozen, sized, little-endian.
// PROTOCOL.md has the grammar and the rules; protocol_test.cc the golden bytes.
#ifndef HOLDFAST_SHARED_ATTACH_PROTOCOL_H_
#define HOLDFAST_SHARED_ATTACH_PROTOCOL_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/status/statusor.h"

namespace holdfast::attach {

static_assert(std::endian::native == std::endian::little,
              "messages are copied as they lie in memory");

inline constexpr std::uint32_t kMagic = 0x54414648;  // "HFAT"
inline constexpr std::uint16_t kVersion = 1;
// No message of any version is longer.
inline constexpr std::size_t kMaxMessageBytes = 256;

enum class MessageKind : std::uint16_t {
  kHello = 1,
  kAccepted = 2,
  kRefused = 3
};

// What the descriptor is: a memfd with blocks. A pool on a device is offered
// with the layout, as something to map besides.
enum class ArenaKind : std::uint32_t { kHost = 1 };

enum class RefusalReason : std::uint32_t {
  kMalformed = 1,    // not a hello
  kVersion = 2,      // a hello of another version
  kCredentials = 3,  // the peer runs as another user
  kBusy = 4,         // another engine is attached; its pid is in the message
  kDraining = 5,     // the cache service is stopping
  kArena = 6,        // pool descriptor missing, not sealed, of another size
  kTooLate = 7,      // no hello within the deadline, or pushed out by others
};
inline constexpr std::uint32_t kLastRefusalReason = 7;
// For log lines and metric labels: "busy", "version", ...
std::string_view RefusalName(RefusalReason reason);

// These 12 bytes are the same in every version.
struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  MessageKind kind = MessageKind::kHello;
  std::uint32_t message_bytes = 0;  // header included
};
static_assert(sizeof(Header) == 12);

// Engine to cache service, with one descriptor: the pool's memfd.
struct Hello {
  Header header = {.kind = MessageKind::kHello, .message_bytes = 128};
  std::uint32_t pid = 0;  // as the engine sees itself
  std::uint64_t pool_bytes = 0;
  ArenaKind arena_kind = ArenaKind::kHost;
  std::uint32_t reserved0 = 0;
  std::array<std::uint8_t, 32> fingerprint = {};
  std::array<std::uint8_t, 64> reserved1 = {};
};
static_assert(sizeof(Hello) == 128 && offsetof(Hello, pid) == 12 &&
              offsetof(Hello, pool_bytes) == 16 &&
              offsetof(Hello, arena_kind) == 24 &&
              offsetof(Hello, fingerprint) == 32 &&
              offsetof(Hello, reserved1) == 64);

// Cache service to engine, with one descriptor: the staging memfd.
struct Accepted {
  Header header = {.kind = MessageKind::kAccepted, .message_bytes = 64};
  std::uint32_t pid = 0;    // as the cache service sees itself
  std::uint64_t epoch = 0;  // random, never 0; every Cache call carries it
  std::uint64_t staging_bytes = 0;
  std::uint32_t staging_slots = 0;  // of staging_bytes / staging_slots each
  std::array<std::uint8_t, 28> reserved = {};
};
static_assert(sizeof(Accepted) == 64 && offsetof(Accepted, pid) == 12 &&
              offsetof(Accepted, epoch) == 16 &&
              offsetof(Accepted, staging_bytes) == 24 &&
              offsetof(Accepted, staging_slots) == 32);

// Cache service to engine, without a descriptor; then it closes. The same in
// every version, so that an engine of any version can say why.
struct Refused {
  Header header = {.kind = MessageKind::kRefused, .message_bytes = 256};
  RefusalReason reason = RefusalReason::kMalformed;
  std::uint32_t attached_pid = 0;     // kBusy: the first engine's; else 0
  std::array<char, 236> detail = {};  // UTF-8, ended by a zero
};
static_assert(sizeof(Refused) == 256 && offsetof(Refused, reason) == 12 &&
              offsetof(Refused, attached_pid) == 16 &&
              offsetof(Refused, detail) == 20);

static_assert(std::is_trivially_copyable_v<Hello> &&
              std::is_trivially_copyable_v<Accepted> &&
              std::is_trivially_copyable_v<Refused>);

// A refusal as a value of the program; an expected outcome, not an error.
struct Refusal {
  RefusalReason reason = RefusalReason::kMalformed;
  std::uint32_t attached_pid = 0;
  std::string detail;  // a sentence for people; cut to fit the message
};

// The bytes of a message.
template <typename Message>
std::span<const std::byte> BytesOf(const Message& message) {
  return std::as_bytes(std::span<const Message, 1>(&message, 1));
}

Refused Encode(const Refusal& refusal);

// What a cache service makes of the bytes of a packet: a hello, or why not.
std::variant<Hello, Refusal> ParseHello(std::span<const std::byte> bytes);

// What an engine makes of an answer's bytes. An error: it is no answer.
absl::StatusOr<std::variant<Accepted, Refusal>> ParseAnswer(
    std::span<const std::byte> bytes);

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_PROTOCOL_H_
