#include "engine/records/session_records.h"

#include <string>
#include <thread>
#include <vector>

#include "engine/records/record_bytes.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr PrefixKey kRoot{1};
constexpr PrefixKey kOtherRoot{2};

RecordedTurn Turn(int begin, int end, const std::string& sent = "sent") {
  return {.begin = begin, .end = end, .sent = sent};
}

// The branches, most recently ended first: "ids / end : turns".
std::string Show(SessionRecords& records, const std::string& key = "s",
                 const PrefixKey& root = kRoot) {
  std::string text;
  for (const RecordRef& record : records.Find(root, key, true)) {
    text += text.empty() ? "" : "; ";
    for (const std::int32_t id : record->ids) text += std::to_string(id) + " ";
    text += "/" + std::to_string(record->end);
    for (const RecordedTurn& turn : record->turns) {
      text += " " + std::to_string(turn.begin) + "-" +
              std::to_string(turn.end) + turn.sent;
    }
  }
  return text;
}

TEST(SessionRecordsTest, AGrowingConversationIsOneBranch) {
  SessionRecords records;
  records.Ended(kRoot, "s", 7, {1, 2, 3, 4}, 3);
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 7, Turn(2, 4, "a")));
  EXPECT_EQ(Show(records), "1 2 3 4 /3 2-4a");
  const auto first = records.Find(kRoot, "s", true).front();
  records.Ended(kRoot, "s", 8, {1, 2, 3, 4, 5, 6}, 5);
  EXPECT_EQ(Show(records), "1 2 3 4 5 6 /5 2-4a");
  const auto second = records.Find(kRoot, "s", true).front();
  EXPECT_EQ(second->branch, first->branch);
  EXPECT_NE(second->revision, first->revision);
  // Not from 1 on, as an engine before this one would have numbered them too.
  EXPECT_GT(first->revision, std::uint64_t{1} << 62);
  // The token that was not forwarded need not come back.
  records.Ended(kRoot, "s", 9, {1, 2, 3, 4, 5, 9, 9}, 7);
  EXPECT_EQ(Show(records), "1 2 3 4 5 9 9 /7 2-4a");
}

TEST(SessionRecordsTest, WhatPartsBeforeTheEndIsAnotherBranch) {
  SessionRecords records;
  records.Ended(kRoot, "s", 1, {1, 2, 3, 4, 5, 6, 7}, 6);
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 1, Turn(1, 3, "a")));
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 1, Turn(5, 7, "b")));
  records.Ended(kRoot, "s", 2, {1, 2, 3, 4, 8, 9}, 5);
  // The answer below the fork is in both.
  EXPECT_EQ(Show(records), "1 2 3 4 8 9 /5 1-3a; 1 2 3 4 5 6 7 /6 1-3a 5-7b");
  records.Ended(kRoot, "s", 3, {20, 21}, 1);  // a title
  EXPECT_EQ(records.Find(kRoot, "s", true).size(), 3u);
  records.Ended(kRoot, "s", 4, {1, 2, 3, 4, 5, 6, 7, 8}, 8);
  EXPECT_EQ(Show(records),
            "1 2 3 4 5 6 7 8 /8 1-3a 5-7b; 20 21 /1; 1 2 3 4 8 9 /5 1-3a");
}

TEST(SessionRecordsTest, TheOldestOfTooManyBranchesGoes) {
  SessionRecords records;
  for (int i = 1; i <= 5; ++i) records.Ended(kRoot, "s", i, {i, i}, 2);
  EXPECT_EQ(Show(records), "5 5 /2; 4 4 /2; 3 3 /2; 2 2 /2");
}

TEST(SessionRecordsTest, SaltAndKeyTellSessionsApart) {
  SessionRecords records;
  records.Ended(kRoot, "s", 1, {1, 2}, 1);
  EXPECT_EQ(Show(records, "t"), "");
  EXPECT_EQ(Show(records, "s", kOtherRoot), "");
  EXPECT_FALSE(records.AddTurn(kRoot, "s", 0, Turn(0, 1)));
  EXPECT_TRUE(records.AddTurn(kOtherRoot, "s", 1, Turn(0, 1)));  // waits there
  EXPECT_EQ(Show(records), "1 2 /1");
}

TEST(SessionRecordsTest, AnAnswerMayBeToldBeforeTheEnd) {
  SessionRecords records;
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 5, Turn(1, 2, "a")));
  records.Ended(kRoot, "s", 4, {1, 2, 3}, 3);
  EXPECT_EQ(Show(records), "1 2 3 /3");
  records.Ended(kRoot, "s", 5, {1, 2, 3, 4}, 4);
  EXPECT_EQ(Show(records), "1 2 3 4 /4 1-2a");
}

TEST(SessionRecordsTest, AnswersMustFit) {
  SessionRecords records;
  records.Ended(kRoot, "s", 1, {1, 2, 3}, 3);
  EXPECT_FALSE(records.AddTurn(kRoot, "s", 1, Turn(1, 4)));
  EXPECT_FALSE(records.AddTurn(kRoot, "s", 1, Turn(2, 1)));
  EXPECT_FALSE(records.AddTurn(kRoot, "s", 1, Turn(-1, 1)));
  EXPECT_FALSE(records.AddTurn(
      kRoot, "s", 1,
      Turn(0, 1, std::string(SessionRecords::kMostSentBytes + 1, 'x'))));
  EXPECT_EQ(Show(records), "1 2 3 /3");
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 1, Turn(1, 2, "a")));
  EXPECT_FALSE(records.AddTurn(kRoot, "s", 1, Turn(0, 1, "b")));
  EXPECT_TRUE(records.AddTurn(kRoot, "s", 1, Turn(1, 3, "again")));
  EXPECT_EQ(Show(records), "1 2 3 /3 1-3again");
}

TEST(SessionRecordsTest, BoundedInSessionsAndBytes) {
  SessionRecords few({.sessions = 2, .bytes = std::size_t{1} << 20});
  for (const char* key : {"a", "b", "c"}) few.Ended(kRoot, key, 1, {1}, 1);
  EXPECT_EQ(few.sessions(), 2u);
  EXPECT_EQ(Show(few, "a"), "");
  (void)few.Find(kRoot, "b", /*touch=*/true);
  few.Ended(kRoot, "d", 1, {1}, 1);
  EXPECT_EQ(Show(few, "b"), "1 /1");  // was used later than c

  SessionRecords small({.sessions = 100, .bytes = 100'000});
  for (int i = 0; i < 10; ++i) {
    const std::string key = std::to_string(i);
    small.Ended(kRoot, key, 1, Ids(5000, i), 5000);
    EXPECT_LE(small.bytes(), 100'000u);
    EXPECT_TRUE(small.AddTurn(kRoot, key, 1, Turn(1, 2, std::string(50, 'x'))));
  }
  EXPECT_EQ(small.sessions(), 4u);
  small.Clear();
  EXPECT_EQ(small.bytes(), 0u);
  EXPECT_EQ(small.sessions(), 0u);
}

TEST(SessionRecordsTest, BytesComeToNothingInTheEnd) {
  SessionRecords records({.sessions = 1, .bytes = std::size_t{1} << 20});
  for (int i = 0; i < 20; ++i) {
    records.Ended(kRoot, "s", i + 1, {1, i % 3, i % 5, i}, 3);
    records.AddTurn(kRoot, "s", i + 1, Turn(0, 4));
  }
  records.Ended(kRoot, "t", 1, {1}, 1);
  EXPECT_EQ(records.bytes(), records.Find(kRoot, "t", true).front()->Bytes());
}

TEST(SessionRecordsTest, FoundByTheTokensItWasForwardedTo) {
  SessionRecords records;
  records.Ended(kRoot, "s", 1, {1, 2, 3}, 2);
  records.Ended(kRoot, "s", 2, {4, 5, 6}, 3);
  const std::vector<KeyId> first = {1, 2}, longer = {1, 2, 3},
                           second = {4, 5, 6};
  ASSERT_NE(records.FindEnd(kRoot, "s", first), nullptr);
  EXPECT_EQ(records.FindEnd(kRoot, "s", first)->ids, (Ids{1, 2, 3}));
  EXPECT_EQ(records.FindEnd(kRoot, "s", longer), nullptr);
  EXPECT_NE(records.FindEnd(kRoot, "s", second), nullptr);
}

TEST(SessionRecordsTest, BytesOfARecordAreReadBack) {
  v1::SentTurn sent;
  sent.set_begin_tokens(1);
  sent.set_end_tokens(3);
  sent.mutable_content()->set_text("Yes.");
  SessionRecords records;
  records.Ended(kRoot, "s", 1, {1, 2, 3, 4}, 3);
  ASSERT_TRUE(records.AddTurn(kRoot, "s", 1, FromProto(sent)));
  const std::string bytes =
      EncodeRecord(*records.Find(kRoot, "s", true).front());
  auto decoded = DecodeRecord(bytes);
  ASSERT_TRUE(decoded.has_value());
  SessionRecords others;
  others.Adopt(kRoot, "s", *decoded);
  others.Adopt(kRoot, "s", *decoded);  // is there already
  EXPECT_EQ(Show(others), Show(records));
  // It goes on like any other.
  others.Ended(kRoot, "s", 2, {1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(others.Find(kRoot, "s", true).size(), 1u);
  EXPECT_EQ(others.Find(kRoot, "s", true).front()->turns.size(), 1u);
}

TEST(SessionRecordsTest, WhatIsNoRecordIsNotRead) {
  EXPECT_FALSE(DecodeRecord("").has_value());
  EXPECT_FALSE(DecodeRecord("\xFF\xFF\xFF").has_value());
  v1::SessionRecord proto;
  proto.set_version(2);
  proto.add_ids(1);
  EXPECT_FALSE(DecodeRecord(proto.SerializeAsString()).has_value());
  proto.set_version(1);
  EXPECT_TRUE(DecodeRecord(proto.SerializeAsString()).has_value());
  proto.set_end_tokens(2);
  EXPECT_FALSE(DecodeRecord(proto.SerializeAsString()).has_value());
  proto.set_end_tokens(1);
  proto.add_turns()->set_end_tokens(2);
  EXPECT_FALSE(DecodeRecord(proto.SerializeAsString()).has_value());
}

TEST(SessionRecordsTest, FromManyThreads) {
  SessionRecords records({.sessions = 3, .bytes = 20'000});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&records, t] {
      for (int i = 1; i < 300; ++i) {
        const std::string key = std::to_string(i % 5);
        const auto ticket = static_cast<std::uint64_t>(i * 4 + t);
        records.AddTurn(kRoot, key, ticket, Turn(0, 1));
        records.Ended(kRoot, key, ticket, {t, i, i}, 2);
        (void)records.Find(kRoot, key, true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(records.sessions(), 3u);
}

}  // namespace
}  // namespace holdfast::engine
