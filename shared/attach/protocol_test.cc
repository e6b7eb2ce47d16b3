#include "shared/attach/protocol.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::attach {
namespace {

using testing::HasSubstr;

template <typename Message>
std::string Hex(const Message& message) {
  std::string hex;
  for (std::byte byte : BytesOf(message)) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[std::to_integer<int>(byte) >> 4];
    hex += kDigits[std::to_integer<int>(byte) & 15];
  }
  return hex;
}

Hello SampleHello() {
  Hello hello;
  hello.pid = 0x01020304;
  hello.pool_bytes = 0x1122334455667788;
  std::iota(hello.fingerprint.begin(), hello.fingerprint.end(), 0xa0);
  return hello;
}

Accepted SampleAccepted() {
  Accepted accepted;
  accepted.pid = 7;
  accepted.epoch = 0xfedcba9876543210;
  accepted.staging_bytes = 0x4000000;
  accepted.staging_slots = 32;
  return accepted;
}

template <typename Message>
std::vector<std::byte> Vector(const Message& message) {
  const auto bytes = BytesOf(message);
  return {bytes.begin(), bytes.end()};
}

const Refusal* RefusalIn(const std::variant<Hello, Refusal>& parsed) {
  return std::get_if<Refusal>(&parsed);
}

// These bytes never change while the version is 1.
TEST(AttachProtocol, GoldenBytes) {
  EXPECT_EQ(Hex(SampleHello()),
            "48464154010001008000000004030201"
            "88776655443322110100000000000000"
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf" +
                std::string(128, '0'));
  EXPECT_EQ(Hex(SampleAccepted()),
            "48464154010002004000000007000000"
            "1032547698badcfe0000000400000000"
            "20000000" +
                std::string(56, '0'));
  EXPECT_EQ(
      Hex(Encode({.reason = RefusalReason::kBusy,
                  .attached_pid = 0x2a,
                  .detail = "no"})),
      "484641540100030000010000040000002a0000006e6f" + std::string(468, '0'));
}

TEST(AttachProtocol, HelloComesBack) {
  const auto parsed = ParseHello(BytesOf(SampleHello()));
  ASSERT_TRUE(std::holds_alternative<Hello>(parsed));
  EXPECT_EQ(Hex(std::get<Hello>(parsed)), Hex(SampleHello()));
}

TEST(AttachProtocol, AnswersComeBack) {
  auto accepted = ParseAnswer(BytesOf(SampleAccepted()));
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_EQ(std::get<Accepted>(*accepted).epoch, 0xfedcba9876543210);

  // A detail that does not fit is cut, not spilled.
  auto refused =
      ParseAnswer(BytesOf(Encode({.reason = RefusalReason::kBusy,
                                  .attached_pid = 9,
                                  .detail = std::string(999, 'x')})));
  ASSERT_TRUE(refused.ok());
  const auto& refusal = std::get<Refusal>(*refused);
  EXPECT_EQ(refusal.reason, RefusalReason::kBusy);
  EXPECT_EQ(refusal.attached_pid, 9u);
  EXPECT_EQ(refusal.detail, std::string(235, 'x'));
}

TEST(AttachProtocol, RefusalOfALaterVersionIsUnderstood) {
  Refused message = Encode(
      {.reason = RefusalReason::kVersion, .detail = "I speak version 2"});
  message.header.version = 2;
  auto parsed = ParseAnswer(BytesOf(message));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<Refusal>(*parsed).detail, "I speak version 2");

  Accepted accepted = SampleAccepted();
  accepted.header.version = 2;
  parsed = ParseAnswer(BytesOf(accepted));
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("version 2"));
}

TEST(AttachProtocol, RefusalWithoutItsZeroIsRead) {
  Refused message = Encode({.reason = RefusalReason::kBusy, .detail = ""});
  message.detail.fill('y');
  auto parsed = ParseAnswer(BytesOf(message));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<Refusal>(*parsed).detail.size(), 236u);
}

TEST(AttachProtocol, OtherVersionOfHelloIsRefusedAsSuch) {
  Hello hello = SampleHello();
  hello.header.version = 2;
  std::vector<std::byte> bytes = Vector(hello);
  bytes.resize(40);  // another version may have another size
  const auto parsed = ParseHello(bytes);
  ASSERT_TRUE(RefusalIn(parsed));
  EXPECT_EQ(RefusalIn(parsed)->reason, RefusalReason::kVersion);
  EXPECT_THAT(RefusalIn(parsed)->detail, HasSubstr("version 2"));
}

TEST(AttachProtocol, EveryDamagedHeaderByteIsRefused) {
  const std::vector<std::byte> good = Vector(SampleHello());
  for (std::size_t at = 0; at < sizeof(Header); ++at) {
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{0x80};
    EXPECT_TRUE(RefusalIn(ParseHello(bytes))) << at;
  }
  for (std::size_t length = 0; length <= kMaxMessageBytes; ++length) {
    std::vector<std::byte> bytes = good;
    bytes.resize(length);
    EXPECT_EQ(RefusalIn(ParseHello(bytes)) == nullptr, length == sizeof(Hello))
        << length;
  }
}

TEST(AttachProtocol, DamagedAnswersAreErrors) {
  const std::vector<std::byte> good = Vector(SampleAccepted());
  for (std::size_t at = 0; at < sizeof(Header); ++at) {
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{0x80};
    EXPECT_FALSE(ParseAnswer(bytes).ok()) << at;
  }
  EXPECT_FALSE(ParseAnswer({}).ok());
  Accepted accepted = SampleAccepted();
  accepted.staging_slots = 0;
  EXPECT_FALSE(ParseAnswer(BytesOf(accepted)).ok());
  accepted.staging_slots = 33;
  EXPECT_FALSE(ParseAnswer(BytesOf(accepted)).ok());
  accepted = SampleAccepted();
  accepted.epoch = 0;
  EXPECT_FALSE(ParseAnswer(BytesOf(accepted)).ok());
}

TEST(AttachProtocol, EveryReasonHasItsName) {
  std::vector<std::string> names;
  for (std::uint32_t reason = 1; reason <= kLastRefusalReason; ++reason)
    names.emplace_back(RefusalName(static_cast<RefusalReason>(reason)));
  EXPECT_THAT(names, testing::Not(testing::Contains("unknown")));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(RefusalName(RefusalReason{kLastRefusalReason + 1}), "unknown");
}

}  // namespace
}  // namespace holdfast::attach
