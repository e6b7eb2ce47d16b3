// A whole gateway in front of a fake engine, for tests over HTTP.
#ifndef HOLDFAST_GATEWAY_SERVICE_TESTING_GATEWAY_FIXTURE_H_
#define HOLDFAST_GATEWAY_SERVICE_TESTING_GATEWAY_FIXTURE_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/engine/testing/fake_engine.h"
#include "gateway/http/testing/raw_client.h"
#include "gateway/service/gateway.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace holdfast::gateway::testing {

using nlohmann::json;

// The vocabulary of the fake model: a byte's value is its id, then these.
inline constexpr std::uint32_t kImStart = 257;
inline constexpr std::uint32_t kImEnd = 258;  // ends a turn

// What a stream of server-sent events held.
struct Events {
  std::vector<json> data;    // of the events without a name
  std::vector<json> errors;  // of the events named error
  int comments = 0;
  bool done = false;            // [DONE] came, and nothing behind it
  std::string content() const;  // of a chat's deltas
};
Events ParseEvents(const std::string& body);

// Sockets are in a folder of the test's own. The engine is made but not
// started; its generator answers "Hi!" until told otherwise.
class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest();
  ~GatewayTest() override;

  void StartEngine();
  void StartGateway();
  // Both, and waits until the gateway serves.
  void StartAll();
  void MakeEngine(const std::string& fingerprint);

  std::unique_ptr<http::testing::RawClient> Connect() const;
  // One request on a connection of its own.
  http::testing::RawResponse Get(const std::string& path,
                                 std::string_view headers = "");
  http::testing::RawResponse Post(const std::string& path,
                                  const std::string& body,
                                  std::string_view headers = "");
  http::testing::RawResponse Post(const std::string& path, const json& body) {
    return Post(path, body.dump());
  }
  // A chat request with one user message, `more` merged into it.
  static json Chat(const json& more = json::object());
  bool WaitHealthy();

  std::string folder_;
  GatewayConfig config_;
  GatewayTimings timings_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Gateway> gateway_;
};

// Ids of a text in the fake vocabulary.
std::vector<std::uint32_t> Bytes(std::string_view text);

}  // namespace holdfast::gateway::testing

#endif  // HOLDFAST_GATEWAY_SERVICE_TESTING_GATEWAY_FIXTURE_H_
