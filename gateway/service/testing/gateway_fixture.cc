#include "gateway/service/testing/gateway_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "gateway/template/testing/byte_tokenizer.h"
#include "shared/tokenizer_proto.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawClient;
using http::testing::RawResponse;
using std::chrono::milliseconds;

constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% endif %}";

}  // namespace

std::string Events::content() const {
  std::string text;
  for (const json& event : data) {
    for (const json& choice : event.at("choices")) {
      if (choice.at("delta").contains("content") &&
          choice.at("delta").at("content").is_string())
        text += choice.at("delta").at("content").get<std::string>();
    }
  }
  return text;
}

Events ParseEvents(const std::string& body) {
  Events events;
  std::size_t at = 0;
  while (at < body.size()) {
    std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << body.substr(at);
    if (end == std::string::npos) break;
    std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_FALSE(events.done) << "after [DONE]: " << event;
    const bool error = event.starts_with("event: error\n");
    if (error) event = event.substr(event.find('\n') + 1);
    if (event.starts_with(":")) {
      ++events.comments;
    } else if (event == "data: [DONE]") {
      events.done = true;
    } else if (event.starts_with("data: ")) {
      (error ? events.errors : events.data)
          .push_back(json::parse(event.substr(6)));
    } else {
      ADD_FAILURE() << "not an event: " << event;
    }
  }
  return events;
}

GatewayTest::GatewayTest() {
  spdlog::set_level(spdlog::level::warn);
  std::string pattern = ::testing::TempDir() + "gwXXXXXX";
  folder_ = mkdtemp(pattern.data());
  config_.run_dir = folder_;
  config_.port = 0;
  config_.workers = 1;
  config_.engine_wait_ms = 9000;
  timings_.engine.retry = milliseconds(5);
  timings_.engine.poll = milliseconds(5);
  timings_.http.linger = milliseconds(20);
  MakeEngine("one");
}

GatewayTest::~GatewayTest() {
  gateway_.reset();
  engine_.reset();
  std::filesystem::remove_all(folder_);
}

void GatewayTest::MakeEngine(const std::string& fingerprint) {
  engine_ = std::make_unique<FakeEngine>(folder_ + "/engine.sock", fingerprint);
  TokenizerSpec spec = templates::testing::ByteTokenizerSpec(
      {"<|im_start|>", "<|im_end|>"}, "<|im_end|>");
  spec.chat_template = kTemplate;
  engine_->SetTokenizer(ToProto(spec));
  engine_->SetGenerator([](const auto& request, auto&, auto& writer) {
    const auto prompt = static_cast<std::uint32_t>(request.prompt_ids_size());
    writer.Write(Started(0, prompt));
    writer.Write(Tokens({'H', 'i', '!', kImEnd}));
    writer.Write(Finished(v1::Finished::STOP, 0, prompt, 4));
    return grpc::Status::OK;
  });
}

void GatewayTest::StartEngine() { engine_->Start(); }

void GatewayTest::StartGateway() {
  auto gateway = Gateway::Start(config_, timings_);
  ASSERT_TRUE(gateway.ok()) << gateway.status();
  gateway_ = *std::move(gateway);
}

void GatewayTest::StartAll() {
  StartEngine();
  StartGateway();
  ASSERT_TRUE(WaitHealthy());
}

bool GatewayTest::WaitHealthy() {
  for (int i = 0; i < 2000; ++i) {
    if (Get("/health").status == 200) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

std::unique_ptr<RawClient> GatewayTest::Connect() const {
  return std::make_unique<RawClient>(gateway_->port());
}

RawResponse GatewayTest::Get(const std::string& path,
                             std::string_view headers) {
  const auto client = Connect();
  client->SendRequest("GET", path, "", headers);
  return client->ReadResponse();
}

RawResponse GatewayTest::Post(const std::string& path, const std::string& body,
                              std::string_view headers) {
  const auto client = Connect();
  client->SendRequest("POST", path, body, headers);
  return client->ReadResponse();
}

json GatewayTest::Chat(const json& more) {
  json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  body.update(more);
  return body;
}

std::vector<std::uint32_t> Bytes(std::string_view text) {
  std::vector<std::uint32_t> ids;
  for (const unsigned char byte : text) ids.push_back(byte);
  return ids;
}

}  // namespace holdfast::gateway::testing
