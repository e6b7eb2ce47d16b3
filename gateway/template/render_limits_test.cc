// No template and no request keeps the process busy for ever or eats its
// memory, and the interpreter works on afterwards.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "gateway/template/chat_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::templates {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

absl::Status RenderWith(const RenderLimits& limits, const std::string& source) {
  auto compiled = ChatTemplate::Create(source, {}, limits);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->Render({}).status();
}

void ExpectStillWorks() {
  auto compiled = ChatTemplate::Create("{{ 'ab' * 2 }}", {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto text = (*compiled)->Render({});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "abab");
}

RenderLimits Short() {
  RenderLimits limits;
  limits.deadline = milliseconds(100);
  return limits;
}

TEST(RenderLimitsTest, LoopsEndAtTheDeadline) {
  const absl::Status status = RenderWith(
      Short(),
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("100 ms"));
  ExpectStillWorks();
}

TEST(RenderLimitsTest, RecursionWithoutEndIsAnError) {
  const absl::Status status = RenderWith(
      {}, "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  ExpectStillWorks();
}

TEST(RenderLimitsTest, RangesAreBounded) {
  const absl::Status status =
      RenderWith({}, "{% for a in range(10 * 100000) %}{% endfor %}");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Range too big"));
}

TEST(RenderLimitsTest, OneHugeStringIsRefused) {
  for (const char* source :
       {"{{ 'x' * 10000000000 }}", "{{ 'x'.center(10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}"
        "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"}) {
    const absl::Status status = RenderWith({}, source);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << source << ": " << status;
  }
  ExpectStillWorks();
}

TEST(RenderLimitsTest, ManySmallPiecesCountTogether) {
  RenderLimits limits;
  limits.memory_bytes = std::size_t{32} << 20;
  const absl::Status status =
      RenderWith(limits,
                 "{% for a in range(99999) %}{% for b in range(99999) %}"
                 "{{ 'piece ' ~ a ~ b }}{% endfor %}{% endfor %}");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  ExpectStillWorks();
}

TEST(RenderLimitsTest, LongIntegersAreRefused) {
  for (const char* source :
       {"{{ 7 ** 100000000 }}",
        "{% set ns = namespace(n=3) %}{% for i in range(60) %}"
        "{% set ns.n = ns.n * ns.n %}{% endfor %}"}) {
    const absl::Status status = RenderWith({}, source);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << source << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("integer"));
  }
}

TEST(RenderLimitsTest, TheOutputIsBounded) {
  RenderLimits limits;
  limits.output_bytes = 10;
  EXPECT_TRUE(RenderWith(limits, "{{ 'x' * 10 }}").ok());
  const absl::Status status = RenderWith(limits, "{{ 'x' * 11 }}");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(RenderLimitsTest, WaitingForAnotherRenderHasTheSameDeadline) {
  RenderLimits longer;
  longer.deadline = milliseconds(2000);
  auto slow = ChatTemplate::Create(
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}",
      {}, longer);
  auto quick = ChatTemplate::Create("{{ messages[0] }}", {}, Short());
  ASSERT_TRUE(slow.ok() && quick.ok());
  absl::Status slow_status;
  std::atomic<bool> slow_done = false;
  std::thread thread([&] {
    slow_status = (*slow)->Render({}).status();
    slow_done = true;
  });
  // The quick one waits in vain as soon as the slow one has begun.
  absl::Status quick_status;
  do {
    quick_status = (*quick)->Render({}).status();
  } while (!absl::IsDeadlineExceeded(quick_status) && !slow_done);
  thread.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(quick_status)) << quick_status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(slow_status)) << slow_status;
  ExpectStillWorks();
}

}  // namespace
}  // namespace holdfast::templates
