#include "cachesvc/server.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/paths.h"
#include "shared/attach/test_peers.h"

namespace holdfast::cachesvc {
namespace {

using attach::kTestDeadline;
using testing::HasSubstr;

// grpc.health.v1.Health/Check of the whole server: the answer's bytes.
std::string CheckHealth(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTestDeadline);
  grpc::CompletionQueue queue;
  const grpc::Slice nothing;  // a request of the default service name
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                    grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  grpc::Slice slice;
  EXPECT_TRUE(response.DumpToSingleSlice(&slice).ok());
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    Config config;
    config.run_dir = dir_.path();
    config.staging_mb = 4;
    auto server = Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ =
        grpc::CreateChannel("unix:" + attach::CacheSocketPath(dir_.path()),
                            grpc::InsecureChannelCredentials());
  }
  // Attaches `peer`, which claims the fingerprint abab...; the epoch.
  std::uint64_t Attach(attach::RawPeer& peer) {
    peer.SendHello(pool_);
    const auto answer = peer.Receive();
    EXPECT_TRUE(answer.accepted.has_value());
    return answer.accepted ? answer.accepted->epoch : 0;
  }
  v1::AnnounceLayoutRequest Layout(std::uint64_t epoch) {
    v1::AnnounceLayoutRequest request;
    request.set_epoch(epoch);
    request.set_fingerprint(std::string(32, '\xab'));
    request.set_model_name("tiny");
    v1::CacheLayout* layout = request.mutable_layout();
    v1::View* view = layout->add_views();
    view->set_name("K");
    view->set_bytes_per_token(64);
    v1::Section* section = layout->add_sections();
    section->set_name("h_last");
    section->set_bytes(64);
    layout->set_block_tokens(256);
    layout->set_grid_tokens(1024);
    layout->set_block_bytes(16384);
    layout->set_block_count(64);
    return request;
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kTestDeadline);
  }
  grpc::Status Announce(const v1::AnnounceLayoutRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::AnnounceLayoutResponse response;
    return v1::Cache::NewStub(channel_)->AnnounceLayout(&context, request,
                                                        &response);
  }
  v1::CacheStatus Status() {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::CacheStatus status;
    const grpc::Status called =
        v1::CacheAdmin::NewStub(channel_)->Status(&context, {}, &status);
    EXPECT_TRUE(called.ok()) << called.error_message();
    return status;
  }
  std::string Metrics() {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::CacheMetrics metrics;
    const grpc::Status called =
        v1::CacheAdmin::NewStub(channel_)->Metrics(&context, {}, &metrics);
    EXPECT_TRUE(called.ok()) << called.error_message();
    return metrics.prometheus_text();
  }

  attach::TestDir dir_;
  MemfdArena pool_ =
      attach::TestArena("pool", 1 << 20, ArenaWriters::kCreatorOnly);
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServerTest, LayoutOfTheAttachedEngineIsShown) {
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  const std::uint64_t epoch = Attach(engine);
  EXPECT_FALSE(Status().engine().has_layout());
  const grpc::Status announced = Announce(Layout(epoch));
  ASSERT_TRUE(announced.ok()) << announced.error_message();
  const v1::CacheStatus status = Status();
  ASSERT_TRUE(status.has_engine());
  EXPECT_EQ(status.engine().epoch(), epoch);
  EXPECT_EQ(status.engine().model_name(), "tiny");
  EXPECT_EQ(status.engine().fingerprint(), std::string(32, '\xab'));
  EXPECT_EQ(status.engine().arena(), "host");
  EXPECT_EQ(status.engine().pool_bytes(), pool_.bytes());
  EXPECT_EQ(status.engine().layout().SerializeAsString(),
            Layout(epoch).layout().SerializeAsString());
  EXPECT_EQ(status.staging_bytes(), 4u << 20);
  EXPECT_EQ(status.staging_slots(), 2u);
  // Again, as after a change of layout.
  v1::AnnounceLayoutRequest changed = Layout(epoch);
  changed.mutable_layout()->set_block_count(32);
  EXPECT_TRUE(Announce(changed).ok());
  EXPECT_EQ(Status().engine().layout().block_count(), 32u);
}

// It has keys of no whole block.
TEST_F(ServerTest, AShortPromptIsLookedUp) {
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  const std::uint64_t epoch = Attach(engine);
  ASSERT_TRUE(Announce(Layout(epoch)).ok());
  v1::LookupRequest request;
  request.set_epoch(epoch);
  request.mutable_prompt()->set_root(std::string(32, '\x01'));
  v1::LookupResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  const grpc::Status status =
      v1::Cache::NewStub(channel_)->Lookup(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.candidates_size(), 0);
}

TEST_F(ServerTest, AStopWaitsForWhatLiesOnADeviceToo) {
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  v1::AnnounceLayoutRequest request = Layout(Attach(engine));
  EXPECT_EQ(server_->pool_bytes(), pool_.bytes());
  // Refused: there is no mapper.
  request.mutable_device_pool()->set_bytes(std::uint64_t{30} << 30);
  ASSERT_TRUE(Announce(request).ok());
  EXPECT_EQ(server_->pool_bytes(), pool_.bytes() + (std::uint64_t{30} << 30));
  // Nor need it be offered (arena `pinned`).
  request.clear_device_pool();
  request.set_device_pool_bytes(std::uint64_t{40} << 30);
  ASSERT_TRUE(Announce(request).ok());
  EXPECT_EQ(server_->pool_bytes(), pool_.bytes() + (std::uint64_t{40} << 30));
}

TEST_F(ServerTest, OtherEpochsAreRefused) {
  EXPECT_EQ(Announce(Layout(5)).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  const std::uint64_t epoch = Attach(engine);
  const grpc::Status other = Announce(Layout(epoch + 1));
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other.error_message(), HasSubstr("is not that of"));
  EXPECT_FALSE(Status().engine().has_layout());
  EXPECT_TRUE(Announce(Layout(epoch)).ok());

  engine.Close();
  ASSERT_TRUE(server_->WaitDetached(kTestDeadline));
  EXPECT_EQ(Announce(Layout(epoch)).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  // The next engine does not inherit the layout.
  attach::RawPeer next(attach::AttachSocketPath(dir_.path()));
  EXPECT_NE(Attach(next), epoch);
  EXPECT_FALSE(Status().engine().has_layout());
}

TEST_F(ServerTest, LayoutsThatCannotBeAreRefused) {
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  const std::uint64_t epoch = Attach(engine);
  v1::AnnounceLayoutRequest request = Layout(epoch);
  request.mutable_layout()->set_block_count(65);
  EXPECT_EQ(Announce(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = Layout(epoch);
  request.set_fingerprint(std::string(31, '\xab'));
  const grpc::Status status = Announce(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("fingerprint"));
  EXPECT_FALSE(Status().engine().has_layout());
}

TEST_F(ServerTest, TiersSayWhetherTheyAreThere) {
  const v1::CacheStatus status = Status();
  ASSERT_EQ(status.tiers_size(), 3);
  for (const v1::TierStatus& tier : status.tiers()) {
    const bool in_memory = tier.name() == "store";
    EXPECT_EQ(tier.available(), in_memory);
    EXPECT_EQ(tier.detail(), in_memory ? "" : "no --cache-dir");
  }
  EXPECT_FALSE(status.has_engine());
}

TEST_F(ServerTest, MetricsCount) {
  EXPECT_THAT(Metrics(), HasSubstr("holdfast_cachesvc_engine_attached 0"));
  {
    attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
    Attach(engine);
    attach::RawPeer second(attach::AttachSocketPath(dir_.path()));
    second.SendHello(pool_);
    EXPECT_TRUE(second.Receive().refusal.has_value());
    const std::string text = Metrics();
    EXPECT_THAT(text, HasSubstr("holdfast_cachesvc_engine_attached 1"));
    EXPECT_THAT(text, HasSubstr("holdfast_cachesvc_attach_refusals_total{"
                                "reason=\"busy\"} 1"));
    EXPECT_THAT(text, HasSubstr("reason=\"too_late\"} 0"));
    EXPECT_THAT(text, HasSubstr("holdfast_cachesvc_pool_bytes 1048576"));
  }
  ASSERT_TRUE(server_->WaitDetached(kTestDeadline));
  const std::string text = Metrics();
  EXPECT_THAT(text, HasSubstr("holdfast_cachesvc_attaches_total 1"));
  EXPECT_THAT(text, HasSubstr("holdfast_cachesvc_detaches_total 1"));
  EXPECT_EQ(Status().refused_attaches_total(), 1u);
}

TEST_F(ServerTest, DrainIsSeenByHealthAndStatus) {
  constexpr char kServing[] = "\x08\x01";  // field 1 (status) = 1
  constexpr char kNotServing[] = "\x08\x02";
  EXPECT_EQ(CheckHealth(channel_), kServing);
  attach::RawPeer engine(attach::AttachSocketPath(dir_.path()));
  const std::uint64_t epoch = Attach(engine);
  server_->BeginDrain();
  EXPECT_EQ(CheckHealth(channel_), kNotServing);
  EXPECT_TRUE(Status().draining());
  EXPECT_TRUE(Announce(Layout(epoch)).ok()) << "the attached one is served";
  EXPECT_THAT(Metrics(), HasSubstr("holdfast_cachesvc_draining 1"));
  server_->Stop();
  EXPECT_TRUE(engine.Receive().closed);
}

TEST(ServerConfig, BadValuesAreNamed) {
  Config config;
  EXPECT_TRUE(config.Validate().ok());
  EXPECT_EQ(config.staging_slots(), 32u);
  for (std::uint64_t mb : {0u, 3u, (1u << 20) + 2}) {
    config.staging_mb = mb;
    EXPECT_THAT(std::string(config.Validate().message()),
                HasSubstr("--staging-mb " + std::to_string(mb)));
  }
  config = {};
  config.run_dir.clear();
  EXPECT_THAT(std::string(config.Validate().message()), HasSubstr("--run-dir"));
}

TEST(ServerConfig, ALongRunDirectoryIsAnError) {
  Config config;
  config.run_dir = "/tmp/" + std::string(120, 'x');
  EXPECT_FALSE(Server::Start(config).ok());
}

}  // namespace
}  // namespace holdfast::cachesvc
