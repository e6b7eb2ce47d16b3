#include "shared/attach/attach_client.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_server.h"
#include "shared/attach/paths.h"
#include "shared/attach/test_peers.h"

namespace holdfast::attach {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using State = AttachLink::State;

constexpr char kStagingName[] = "client-test-staging";

// The gRPC side of a cache service: keeps what was announced.
class FakeCache final : public v1::Cache::Service {
 public:
  explicit FakeCache(const std::string& run_dir) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + CacheSocketPath(run_dir),
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~FakeCache() override {
    server_->Shutdown(std::chrono::system_clock::now() + kTestDeadline);
  }

  grpc::Status AnnounceLayout(grpc::ServerContext*,
                              const v1::AnnounceLayoutRequest* request,
                              v1::AnnounceLayoutResponse* response) override {
    std::unique_lock lock(mutex_);
    requests_.push_back(*request);
    changed_.notify_all();
    EXPECT_TRUE(
        changed_.wait_for(lock, kTestDeadline, [this] { return !held_; }));
    *response = response_;
    return answer_;
  }
  // Calls that come are answered after Release().
  void Hold() { SetHeld(true); }
  void Release() { SetHeld(false); }
  bool AwaitRequest() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestDeadline,
                             [this] { return !requests_.empty(); });
  }
  void AnswerWith(grpc::Status status) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(status);
  }
  void Respond(const v1::AnnounceLayoutResponse& response) {
    std::lock_guard lock(mutex_);
    response_ = response;
  }
  std::vector<v1::AnnounceLayoutRequest> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void SetHeld(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  grpc::Status answer_;
  v1::AnnounceLayoutResponse response_;
  std::vector<v1::AnnounceLayoutRequest> requests_;
  std::unique_ptr<grpc::Server> server_;
};

// How many mappings of a memfd of this name the process has.
int MappingsOf(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:" + name) != std::string::npos) ++count;
  return count;
}

class AttachClientTest : public testing::Test {
 protected:
  AttachClientOptions Options(LinkRecorder& recorder) {
    AttachClientOptions options;
    options.run_dir = dir_.path();
    options.pool = &pool_;
    options.fingerprint.fill(0xcd);
    options.model_name = "tiny";
    options.layout.views = {{.name = "K", .bytes_per_token = 32, .parts = 2},
                            {.name = "V", .bytes_per_token = 32, .parts = 2}};
    options.layout.sections = {{.name = "h_last", .bytes = 64}};
    options.block_count = pool_.bytes() / options.layout.BlockBytes();
    options.on_change = recorder.Callback();
    options.retry = milliseconds(1);
    return options;
  }
  std::unique_ptr<AttachClient> StartClient(AttachClientOptions options) {
    auto client = AttachClient::Start(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::unique_ptr<AttachServer> StartServer() {
    AttachServerOptions options;
    options.socket_path = AttachSocketPath(dir_.path());
    options.staging = &staging_;
    options.staging_slots = 4;
    auto server = AttachServer::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // A cache service that can be told to answer anything.
  UniqueFd StartListener() {
    auto listener = Listen(AttachSocketPath(dir_.path()), 16);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return *std::move(listener);
  }
  // The next connection and its hello.
  static UniqueFd TakeHello(const UniqueFd& listener) {
    EXPECT_TRUE(WaitReadable(listener.get()));
    UniqueFd socket(accept4(listener.get(), nullptr, nullptr,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    EXPECT_TRUE(WaitReadable(socket.get()));
    auto packet = ReceivePacket(socket.get());
    EXPECT_TRUE(packet.ok() && packet->has_value());
    return socket;
  }

  TestDir dir_;
  MemfdArena staging_ =
      TestArena(kStagingName, 1 << 16, ArenaWriters::kEveryHolder);
  MemfdArena pool_ = TestArena("pool", 1 << 20, ArenaWriters::kCreatorOnly);
  LinkRecorder recorder_;
};

TEST_F(AttachClientTest, AttachesAndAnnouncesItsLayout) {
  FakeCache cache(dir_.path());
  auto server = StartServer();
  auto client = StartClient(Options(recorder_));
  const auto link = recorder_.Await(State::kAttached);
  ASSERT_TRUE(link.has_value());
  EXPECT_EQ(link->detail, "cache service pid " + std::to_string(getpid()));
  EXPECT_EQ(link->attaches, 1u);
  EXPECT_EQ(client->link(), *link);

  const auto requests = cache.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].epoch(), server->state().peer->epoch);
  EXPECT_EQ(requests[0].fingerprint(), std::string(32, '\xcd'));
  EXPECT_EQ(requests[0].model_name(), "tiny");
  const v1::CacheLayout& layout = requests[0].layout();
  ASSERT_EQ(layout.views_size(), 2);
  EXPECT_EQ(layout.views(1).name(), "V");
  EXPECT_EQ(layout.views(1).bytes_per_token(), 32u);
  ASSERT_EQ(layout.sections_size(), 1);
  EXPECT_EQ(layout.sections(0).bytes(), 64u);
  EXPECT_EQ(layout.block_tokens(), 256u);
  EXPECT_EQ(layout.grid_tokens(), 1024u);
  EXPECT_EQ(layout.block_bytes(), 16384u);
  EXPECT_EQ(layout.block_count(), 64u);

  client->Stop();
  EXPECT_TRUE(server->WaitDetached(kTestDeadline));
  EXPECT_EQ(client->link().state, State::kOff);
}

TEST_F(AttachClientTest, TriesUntilThereIsACacheService) {
  auto client = StartClient(Options(recorder_));
  const auto alone = recorder_.Await(State::kDetached);
  ASSERT_TRUE(alone.has_value());
  EXPECT_THAT(alone->detail, HasSubstr(AttachSocketPath(dir_.path())));
  FakeCache cache(dir_.path());
  auto server = StartServer();
  EXPECT_TRUE(recorder_.Await(State::kAttached).has_value());
}

TEST_F(AttachClientTest, SecondEngineWaitsForTheFirstToGo) {
  FakeCache cache(dir_.path());
  auto server = StartServer();
  auto first = StartClient(Options(recorder_));
  ASSERT_TRUE(recorder_.Await(State::kAttached).has_value());

  LinkRecorder second_recorder;
  auto second = StartClient(Options(second_recorder));
  const auto refused = second_recorder.Await(State::kRefused);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->detail,
            "engine pid " + std::to_string(getpid()) + " is attached");
  first->Stop();
  EXPECT_TRUE(second_recorder.Await(State::kAttached).has_value());
}

TEST_F(AttachClientTest, ReattachesToTheNextCacheServiceWithItsEpoch) {
  FakeCache cache(dir_.path());
  auto server = StartServer();
  auto client = StartClient(Options(recorder_));
  ASSERT_TRUE(recorder_.Await(State::kAttached).has_value());
  server.reset();
  const auto gone = recorder_.Await(State::kDetached);
  ASSERT_TRUE(gone.has_value());
  EXPECT_THAT(gone->detail, HasSubstr("went away"));
  server = StartServer();
  const auto again = recorder_.Await(State::kAttached);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->attaches, 2u);
  const auto requests = cache.requests();
  ASSERT_GE(requests.size(), 2u);
  EXPECT_NE(requests.front().epoch(), requests.back().epoch());
  EXPECT_EQ(requests.back().epoch(), server->state().peer->epoch);
}

TEST_F(AttachClientTest, StagingOfADeadCacheServiceIsUnmapped) {
  FakeCache cache(dir_.path());
  auto server = StartServer();
  AttachClientOptions options = Options(recorder_);
  options.retry = std::chrono::hours(1);
  auto client = StartClient(std::move(options));
  ASSERT_TRUE(recorder_.Await(State::kAttached).has_value());
  EXPECT_EQ(MappingsOf(kStagingName), 2);  // the maker's and the client's
  server.reset();
  ASSERT_TRUE(recorder_.Await(State::kDetached).has_value());
  EXPECT_EQ(MappingsOf(kStagingName), 1);
}

TEST_F(AttachClientTest, SilentCacheServiceTimesOut) {
  const UniqueFd listener = StartListener();
  AttachClientOptions options = Options(recorder_);
  options.handshake_deadline = milliseconds(10);
  auto client = StartClient(std::move(options));
  const auto link = recorder_.Await(State::kDetached);
  ASSERT_TRUE(link.has_value());
  EXPECT_THAT(link->detail, HasSubstr("no answer to the hello within 10 ms"));
}

TEST_F(AttachClientTest, StopEndsAHandshakeAtOnce) {
  const UniqueFd listener = StartListener();
  AttachClientOptions options = Options(recorder_);
  options.handshake_deadline = std::chrono::hours(1);
  auto client = StartClient(std::move(options));
  const UniqueFd socket = TakeHello(listener);
  EXPECT_EQ(client->link().state, State::kDetached);  // answers meanwhile
  client->Stop();
  EXPECT_TRUE(WaitReadable(socket.get()));
  auto packet = ReceivePacket(socket.get());
  EXPECT_TRUE(packet.ok() && packet->has_value() && (*packet)->Closed());
}

TEST_F(AttachClientTest, StopEndsAnAnnouncementAtOnce) {
  FakeCache cache(dir_.path());
  cache.Hold();
  auto server = StartServer();
  AttachClientOptions options = Options(recorder_);
  options.announce_deadline = std::chrono::hours(1);
  auto client = StartClient(std::move(options));
  ASSERT_TRUE(cache.AwaitRequest());
  client->Stop();  // while the call waits for its answer
  cache.Release();
  EXPECT_TRUE(server->WaitDetached(kTestDeadline));
  EXPECT_EQ(client->link().attaches, 0u);
}

TEST_F(AttachClientTest, LayoutThatIsRefusedDetaches) {
  FakeCache cache(dir_.path());
  cache.AnswerWith(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another epoch"));
  auto server = StartServer();
  auto client = StartClient(Options(recorder_));
  const auto link = recorder_.Await(State::kDetached);
  ASSERT_TRUE(link.has_value());
  EXPECT_THAT(link->detail, HasSubstr("another epoch"));
  EXPECT_EQ(link->attaches, 0u);
  cache.AnswerWith(grpc::Status::OK);
  EXPECT_TRUE(recorder_.Await(State::kAttached).has_value());
}

TEST_F(AttachClientTest, AnswersThatCannotBeTrustedAreNamed) {
  const UniqueFd listener = StartListener();
  auto client = StartClient(Options(recorder_));
  const auto answer = [&](std::span<const std::byte> bytes, int descriptor,
                          const std::string& detail) {
    const UniqueFd socket = TakeHello(listener);
    EXPECT_TRUE(SendPacket(socket.get(), bytes, descriptor).ok());
    const auto link = recorder_.Await([&](const AttachLink& l) {
      return l.state == State::kDetached &&
             l.detail.find(detail) != std::string::npos;
    });
    EXPECT_TRUE(link.has_value()) << detail;
  };
  Accepted accepted;
  accepted.pid = 77;
  accepted.epoch = 5;
  accepted.staging_bytes = staging_.bytes();
  accepted.staging_slots = 4;
  answer(std::vector<std::byte>(9), -1, "9 bytes are no message");
  answer(BytesOf(accepted), -1, "pid 77: 0 descriptors");
  const UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 16), 0);
  answer(BytesOf(accepted), unsealed.get(), "staging of cache service pid 77");
  accepted.header.version = 3;
  answer(BytesOf(accepted), staging_.fd(), "version 3");
  accepted.header.version = kVersion;
  accepted.staging_bytes = 1 << 20;
  answer(BytesOf(accepted), staging_.fd(), "has 65536 bytes");
  { const UniqueFd closed = TakeHello(listener); }
  EXPECT_TRUE(recorder_.Await([](const AttachLink& l) {
    return l.detail == "cache service closed without an answer";
  }));
  EXPECT_EQ(client->link().attaches, 0u);
}

TEST_F(AttachClientTest, MemoryIsNotGivenToAnotherUsersService) {
  const UniqueFd listener = StartListener();
  AttachClientOptions options = Options(recorder_);
  options.check_peer = [](const Credentials& peer) {
    return CheckSameUser({.pid = peer.pid, .uid = peer.uid + 1});
  };
  auto client = StartClient(std::move(options));
  ASSERT_TRUE(WaitReadable(listener.get()));
  const UniqueFd socket(
      accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ASSERT_TRUE(WaitReadable(socket.get()));
  auto packet = ReceivePacket(socket.get());
  ASSERT_TRUE(packet.ok() && packet->has_value());
  EXPECT_TRUE((*packet)->Closed()) << "it sent its hello";
  const auto link = recorder_.Await(State::kDetached);
  ASSERT_TRUE(link.has_value());
  EXPECT_THAT(link->detail, HasSubstr("runs as uid"));
}

// It is mapped when the right bytes came back, whatever else is said.
TEST_F(AttachClientTest, ADevicePoolIsMappedWhenItWasRead) {
  FakeCache cache(dir_.path());
  DevicePool pool;
  pool.block_count = 3;
  pool.check_offset = 4096 * 3;
  pool.memory.ipc.fill(1);
  pool.memory.device_uuid.fill(2);
  pool.memory.bytes = 1 << 21;
  pool.memory.exporter_pid = 77;
  pool.memory.exporter_start = 88;
  pool.check.fill(0xc3);
  const auto mapped = [&](const v1::AnnounceLayoutResponse& response) {
    cache.Respond(response);
    const auto server = StartServer();
    LinkRecorder recorder;
    AttachClientOptions options = Options(recorder);
    options.device_pool = pool;
    const auto client = StartClient(std::move(options));
    EXPECT_TRUE(recorder.Await(State::kAttached).has_value());
    return client->session()->device_mapped.load();
  };
  v1::AnnounceLayoutResponse response;
  EXPECT_FALSE(mapped(response));  // a service that knows none
  response.set_device_refused("no such device");
  EXPECT_FALSE(mapped(response));
  response.clear_device_refused();
  response.set_device_check(std::string(kDeviceCheckBytes, '\xc2'));
  EXPECT_FALSE(mapped(response));  // some other memory
  response.set_device_check(std::string(kDeviceCheckBytes, '\xc3'));
  EXPECT_TRUE(mapped(response));
  const v1::DevicePool sent = cache.requests().back().device_pool();
  EXPECT_EQ(sent.ipc_handle(), std::string(64, '\x01'));
  EXPECT_EQ(sent.device_uuid(), std::string(16, '\x02'));
  EXPECT_EQ(sent.bytes(), pool.memory.bytes);
  EXPECT_EQ(sent.exporter_pid(), 77u);
  EXPECT_EQ(sent.exporter_start(), 88u);
  EXPECT_EQ(sent.block_count(), 3u);
  EXPECT_EQ(sent.check_offset_bytes(), pool.check_offset);
}

}  // namespace
}  // namespace holdfast::attach
