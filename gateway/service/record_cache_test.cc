#include "gateway/service/record_cache.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast::gateway {
namespace {

v1::GetRecordsResponse Answer(bool with_record) {
  v1::GetRecordsResponse response;
  v1::GetRecordsResponse::Branch* const branch = response.add_branches();
  branch->set_branch(1);
  branch->set_revision(7);
  if (with_record) branch->mutable_record()->add_ids(5);
  return response;
}

SessionName Named(int number) {
  return {"fingerprint", "salt", std::to_string(number)};
}

TEST(RecordCacheTest, WhatWasNotSentAgainIsKept) {
  RecordCache cache;
  v1::GetRecordsRequest request;
  EXPECT_TRUE(cache.FillKnown(Named(0), &request).empty());
  EXPECT_EQ(cache.Take(Named(0), {}, Answer(true)).size(), 1u);
  const auto known = cache.FillKnown(Named(0), &request);
  ASSERT_EQ(request.known_size(), 1);
  EXPECT_EQ(request.known(0).revision(), 7u);
  // Many other sessions pass while the engine is asked.
  for (int i = 1; i <= static_cast<int>(RecordCache::kMostSessions); ++i)
    cache.Take(Named(i), {}, Answer(true));
  v1::GetRecordsRequest later;
  EXPECT_TRUE(cache.FillKnown(Named(0), &later).empty());
  const Records records = cache.Take(Named(0), known, Answer(false));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]->ids, std::vector<std::uint32_t>{5});
  EXPECT_EQ(cache.FillKnown(Named(0), &later).size(), 1u);
}

}  // namespace
}  // namespace holdfast::gateway
