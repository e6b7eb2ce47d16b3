// Completions over HTTP, against an engine that does what the test says.
#ifndef HOLDFAST_GATEWAY_SERVICE_TESTING_COMPLETIONS_FIXTURE_H_
#define HOLDFAST_GATEWAY_SERVICE_TESTING_COMPLETIONS_FIXTURE_H_

#include <utility>
#include <vector>

#include "gateway/service/testing/gateway_fixture.h"
#include "gtest/gtest.h"

namespace holdfast::gateway::testing {

inline constexpr char kChatPath[] = "/v1/chat/completions";
inline constexpr char kTextPath[] = "/v1/completions";

class CompletionsTest : public GatewayTest {
 protected:
  // The engine's next calls write these events.
  void Script(std::vector<v1::GenerateEvent> events) {
    engine_->SetGenerator(
        [events = std::move(events)](const auto&, auto&, auto& writer) {
          for (const v1::GenerateEvent& event : events) writer.Write(event);
          return grpc::Status::OK;
        });
  }
  Events Stream(const json& body) {
    const http::testing::RawResponse response = Post(kChatPath, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    return ParseEvents(response.body);
  }
  json Answer(const json& body, const char* path = kChatPath) {
    const http::testing::RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  json Refusal(const json& body, int status, const char* path = kChatPath) {
    const http::testing::RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body).at("error");
  }
};

}  // namespace holdfast::gateway::testing

#endif  // HOLDFAST_GATEWAY_SERVICE_TESTING_COMPLETIONS_FIXTURE_H_
