#include "engine/scheduler/fair_queue.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/testing/recording_sink.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<Job> MakeJob(const std::string& salt, const std::string& key,
                             const std::string& id) {
  Request request;
  request.id = id;
  request.salt = salt;
  request.session_key = key;
  return std::make_shared<Job>(std::move(request),
                               std::make_shared<testing::RecordingSink>());
}

std::vector<std::string> PopAll(FairQueue& queue) {
  std::vector<std::string> ids;
  while (const auto job = queue.Pop()) ids.push_back(job->request.id);
  EXPECT_EQ(queue.size(), 0);
  return ids;
}

TEST(FairQueueTest, OneClientIsServedInOrder) {
  FairQueue queue;
  for (const char* id : {"1", "2", "3"}) queue.Push(MakeJob("a", "k", id));
  EXPECT_EQ(queue.size(), 3);
  EXPECT_THAT(PopAll(queue), ElementsAre("1", "2", "3"));
}

TEST(FairQueueTest, NoSessionStarvesAnother) {
  FairQueue queue;
  for (const char* id : {"a1", "a2", "a3"}) queue.Push(MakeJob("", "a", id));
  queue.Push(MakeJob("", "b", "b1"));
  queue.Push(MakeJob("", "c", "c1"));
  EXPECT_THAT(PopAll(queue), ElementsAre("a1", "b1", "c1", "a2", "a3"));
}

// However many sessions a tenant has, it has one turn in two.
TEST(FairQueueTest, NoSaltStarvesAnother) {
  FairQueue queue;
  for (const char* key : {"a1", "a2", "a3", "a4"}) {
    queue.Push(MakeJob("a", key, key));
  }
  queue.Push(MakeJob("b", "k", "b1"));
  queue.Push(MakeJob("b", "k", "b2"));
  EXPECT_THAT(PopAll(queue), ElementsAre("a1", "b1", "a2", "b2", "a3", "a4"));
}

TEST(FairQueueTest, WhoComesLaterWaitsForItsTurn) {
  FairQueue queue;
  queue.Push(MakeJob("", "a", "a1"));
  queue.Push(MakeJob("", "a", "a2"));
  queue.Push(MakeJob("", "b", "b1"));
  EXPECT_EQ(queue.Pop()->request.id, "a1");
  queue.Push(MakeJob("", "c", "c1"));
  EXPECT_THAT(PopAll(queue), ElementsAre("b1", "a2", "c1"));
}

TEST(FairQueueTest, RemovesOneJob) {
  FairQueue queue;
  const auto gone = MakeJob("a", "k", "1");
  queue.Push(gone);
  queue.Push(MakeJob("a", "k", "2"));
  queue.Push(MakeJob("b", "k", "3"));
  EXPECT_TRUE(queue.Remove(gone));
  EXPECT_FALSE(queue.Remove(gone));
  EXPECT_EQ(queue.size(), 2);
  EXPECT_THAT(PopAll(queue), ElementsAre("2", "3"));
}

}  // namespace
}  // namespace holdfast::engine
