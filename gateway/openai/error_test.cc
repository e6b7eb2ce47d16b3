#include "gateway/openai/error.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using ::testing::HasSubstr;

TEST(ErrorTest, HasTheFourFieldsOfOpenAi) {
  EXPECT_EQ(ErrorJson(FieldError("top_p", "must be above 0")).dump(),
            R"({"error":{"message":"top_p: must be above 0",)"
            R"("type":"invalid_request_error","param":"top_p","code":null}})");
  EXPECT_EQ(ErrorJson(FieldError("", "x")).dump(),
            R"({"error":{"message":"x","type":"invalid_request_error",)"
            R"("param":null,"code":null}})");
}

TEST(ErrorTest, ContextOverflowHasTheWordsClientsLookFor) {
  const ApiError error = ContextOverflow("messages", 9000, 8192);
  EXPECT_EQ(error.http_status, 400);
  EXPECT_THAT(error.message, HasSubstr("exceeds the available context size"));
  EXPECT_THAT(error.message,
              HasSubstr("maximum context length is 8192 tokens"));
  const Json json = ErrorJson(error);
  EXPECT_EQ(json["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["n_prompt_tokens"], 9000);
  EXPECT_EQ(json["error"]["n_ctx"], 8192);
}

TEST(ErrorTest, StatusesAndCodes) {
  const auto check = [](const ApiError& error, int status, const char* code) {
    EXPECT_EQ(error.http_status, status);
    EXPECT_EQ(error.code, code);
    EXPECT_FALSE(error.message.empty());
    EXPECT_FALSE(error.type.empty());
  };
  check(UnsupportedError("n", "x"), 400, "unsupported_value");
  check(Unauthorized(), 401, "invalid_api_key");
  check(ModelNotFound("m"), 404, "model_not_found");
  check(PathNotFound("/x"), 404, "not_found");
  check(MethodNotAllowed("PUT", "/x"), 405, "method_not_allowed");
  check(BodyTooLarge(10), 413, "request_too_large");
  check(CodingNotKnown("gzip"), 415, "unsupported_encoding");
  check(ForeignPage("m"), 403, "foreign_page");
  check(QueueFull("full", 1), 429, "queue_full");
  check(Unavailable("gone", 1), 503, "unavailable");
  check(InternalError("x"), 500, "internal_error");
}

TEST(ErrorTest, RetryAfterIsInWholeSecondsAndNeverZero) {
  EXPECT_EQ(QueueFull("", 0).retry_after_s, 1);
  EXPECT_EQ(QueueFull("", 1000).retry_after_s, 1);
  EXPECT_EQ(Unavailable("", 1001).retry_after_s, 2);
  EXPECT_EQ(Unauthorized().retry_after_s, std::nullopt);
}

TEST(ErrorTest, FromStatus) {
  const ApiError bad = FromStatus(absl::InvalidArgumentError("no"), "messages");
  EXPECT_EQ(bad.http_status, 400);
  EXPECT_EQ(bad.param, "messages");
  EXPECT_EQ(bad.message, "messages: no");
  EXPECT_EQ(FromStatus(absl::ResourceExhaustedError("big"), "").http_status,
            400);
  EXPECT_EQ(FromStatus(absl::DeadlineExceededError("slow"), "x").http_status,
            503);
  EXPECT_EQ(FromStatus(absl::InternalError("oh"), "x").http_status, 500);
}

}  // namespace
}  // namespace holdfast::openai
