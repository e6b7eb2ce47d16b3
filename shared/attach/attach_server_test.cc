#include "shared/attach/attach_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/attach/test_peers.h"

namespace holdfast::attach {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Holds the server's thread at the first connection that it accepts, so that a
// test can queue others behind it in an order of its choosing.
class AcceptGate {
 public:
  CredentialCheck Check() {
    return [this](const Credentials& peer) {
      std::unique_lock lock(mutex_);
      reached_ = true;
      changed_.notify_all();
      EXPECT_TRUE(
          changed_.wait_for(lock, kTestDeadline, [this] { return open_; }));
      return CheckSameUser(peer);
    };
  }
  bool AwaitReached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestDeadline, [this] { return reached_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool open_ = false;
};

class AttachServerTest : public testing::Test {
 protected:
  AttachServerOptions Options() {
    AttachServerOptions options;
    options.socket_path = path_;
    options.staging = &staging_;
    options.staging_slots = 4;
    return options;
  }
  void Start(AttachServerOptions options) {
    auto server = AttachServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Attaches `peer`; the epoch, or 0 when it was not accepted.
  std::uint64_t AttachPeer(RawPeer& peer) {
    peer.SendHello(pool_);
    const auto answer = peer.Receive();
    return answer.accepted ? answer.accepted->epoch : 0;
  }
  // What the server says to these bytes, from a peer of its own.
  Refusal RefusalOf(std::span<const std::byte> bytes, int descriptor) {
    RawPeer peer(path_);
    peer.Send(bytes, descriptor);
    const auto answer = peer.Receive();
    EXPECT_TRUE(answer.refusal.has_value());
    if (!answer.refusal) return {};
    EXPECT_TRUE(peer.Receive().closed);
    return *answer.refusal;
  }
  std::uint64_t Refused(RefusalReason reason) {
    return server_->state().refusals[static_cast<std::size_t>(reason)];
  }

  TestDir dir_;
  const std::string path_ = dir_.path() + "/attach.sock";
  MemfdArena staging_ =
      TestArena("staging", 1 << 16, ArenaWriters::kEveryHolder);
  MemfdArena pool_ = TestArena("pool", 1 << 20, ArenaWriters::kCreatorOnly);
  AcceptGate gate_;  // its check is called until the server ends
  std::unique_ptr<AttachServer> server_;
};

TEST_F(AttachServerTest, AttachesAndSeesTheEnd) {
  Start(Options());
  EXPECT_FALSE(server_->state().peer.has_value());
  RawPeer engine(path_);
  engine.SendHello(pool_);
  const auto answer = engine.Receive();
  ASSERT_TRUE(answer.accepted.has_value());
  EXPECT_EQ(answer.accepted->pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(answer.accepted->staging_bytes, staging_.bytes());
  EXPECT_EQ(answer.accepted->staging_slots, 4u);
  ASSERT_EQ(answer.descriptors.size(), 1u);
  auto mapped = MappedArena::MapReadOnly("staging", answer.descriptors[0].get(),
                                         1 << 16, ArenaWriters::kEveryHolder);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  staging_.data()[5] = std::byte{42};
  EXPECT_EQ(mapped->data()[5], std::byte{42});

  const AttachServerState state = server_->state();
  ASSERT_TRUE(state.peer.has_value());
  // The kernel's pid, not the one that the hello claims.
  EXPECT_EQ(state.peer->pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(state.peer->epoch, answer.accepted->epoch);
  EXPECT_EQ(state.peer->pool_bytes, pool_.bytes());
  EXPECT_EQ(state.peer->fingerprint[31], 0xab);
  EXPECT_EQ(state.attaches, 1u);

  engine.Close();
  ASSERT_TRUE(server_->WaitDetached(kTestDeadline));
  EXPECT_EQ(server_->state().detaches, 1u);
}

TEST_F(AttachServerTest, SecondEngineIsToldTheFirstsPidAndComesLater) {
  Start(Options());
  RawPeer first(path_);
  const std::uint64_t first_epoch = AttachPeer(first);
  ASSERT_NE(first_epoch, 0u);

  RawPeer second(path_);
  second.SendHello(pool_);
  const auto answer = second.Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kBusy);
  EXPECT_EQ(answer.refusal->attached_pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(answer.refusal->detail,
            "engine pid " + std::to_string(getpid()) + " is attached");
  EXPECT_EQ(server_->state().peer->epoch, first_epoch);
  EXPECT_EQ(Refused(RefusalReason::kBusy), 1u);

  first.Close();
  ASSERT_TRUE(server_->WaitDetached(kTestDeadline));
  RawPeer third(path_);
  const std::uint64_t epoch = AttachPeer(third);
  EXPECT_NE(epoch, 0u);
  EXPECT_NE(epoch, first_epoch);
}

TEST_F(AttachServerTest, GarbageIsRefusedWithAReasonAndLeaksNothing) {
  Start(Options());
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  Hello good;
  good.pool_bytes = pool_.bytes();

  std::vector<std::byte> noise(200, std::byte{0x77});
  EXPECT_EQ(RefusalOf(noise, pool_.fd()).reason, RefusalReason::kMalformed);
  const auto whole = BytesOf(good);
  EXPECT_EQ(RefusalOf(whole.first(127), pool_.fd()).reason,
            RefusalReason::kMalformed);
  EXPECT_EQ(RefusalOf(whole.first(1), pool_.fd()).reason,
            RefusalReason::kMalformed);
  std::vector<std::byte> longer(whole.begin(), whole.end());
  longer.resize(4096);
  EXPECT_EQ(RefusalOf(longer, pool_.fd()).reason, RefusalReason::kMalformed);
  Hello other = good;
  other.header.version = 9;
  const Refusal version = RefusalOf(BytesOf(other), pool_.fd());
  EXPECT_EQ(version.reason, RefusalReason::kVersion);
  EXPECT_THAT(version.detail, HasSubstr("version 9"));
  Hello kind = good;
  kind.arena_kind = static_cast<ArenaKind>(77);
  EXPECT_THAT(RefusalOf(BytesOf(kind), pool_.fd()).detail,
              HasSubstr("arena kind 77"));

  RawPeer engine(path_);
  EXPECT_NE(AttachPeer(engine), 0u) << "a good engine after all that";
  engine.Close();
  ASSERT_TRUE(server_->WaitDetached(kTestDeadline));
  EXPECT_EQ(open_files(), before);
}

TEST_F(AttachServerTest, PoolThatCannotBeTrustedIsRefused) {
  Start(Options());
  Hello hello;
  hello.pool_bytes = pool_.bytes();
  const auto refuse = [&](int descriptor, const std::string& detail) {
    const Refusal refusal = RefusalOf(BytesOf(hello), descriptor);
    EXPECT_EQ(refusal.reason, RefusalReason::kArena);
    EXPECT_THAT(refusal.detail, HasSubstr(detail));
  };
  refuse(-1, "without the pool's descriptor");
  const UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  refuse(unsealed.get(), "lack");
  refuse(staging_.fd(), "lack 0x10");  // others could write it
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  refuse(null.get(), "no memfd");
  hello.pool_bytes += 1;
  refuse(pool_.fd(), "not 1048577");
  hello.pool_bytes = 0;
  refuse(pool_.fd(), "not possible");
  EXPECT_EQ(Refused(RefusalReason::kArena), 6u);
}

TEST_F(AttachServerTest, TwoDescriptorsAreOneTooMany) {
  Start(Options());
  RawPeer peer(path_);
  Hello hello;
  hello.pool_bytes = pool_.bytes();
  iovec part = {.iov_base = &hello, .iov_len = sizeof(hello)};
  const int descriptors[2] = {pool_.fd(), pool_.fd()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  ASSERT_GT(sendmsg(peer.fd(), &message, MSG_NOSIGNAL), 0);
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kMalformed);
}

TEST_F(AttachServerTest, SilentPeersHoldNobodyUp) {
  AttachServerOptions options = Options();
  options.max_half_open = 3;
  options.handshake_deadline = std::chrono::hours(1);
  options.check_peer = gate_.Check();
  Start(std::move(options));
  std::vector<RawPeer> silent;
  silent.emplace_back(path_);
  ASSERT_TRUE(gate_.AwaitReached());
  // An engine amid more silent peers than may wait, before and behind it.
  for (int i = 0; i < 4; ++i) silent.emplace_back(path_);
  RawPeer engine(path_);
  engine.SendHello(pool_);
  for (int i = 0; i < 4; ++i) silent.emplace_back(path_);
  gate_.Open();
  EXPECT_TRUE(engine.Receive().accepted.has_value());
  // The oldest were pushed out, and told so.
  const auto answer = silent[0].Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kTooLate);
}

TEST_F(AttachServerTest, HelloHasADeadline) {
  AttachServerOptions options = Options();
  options.handshake_deadline = milliseconds(1);
  Start(std::move(options));
  RawPeer silent(path_);
  const auto answer = silent.Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kTooLate);
  EXPECT_TRUE(silent.Receive().closed);
}

TEST_F(AttachServerTest, OtherUsersAreRefused) {
  AttachServerOptions options = Options();
  options.check_peer = [](const Credentials& peer) {
    return CheckSameUser({.pid = peer.pid, .uid = peer.uid + 1});
  };
  Start(std::move(options));
  RawPeer peer(path_);
  peer.SendHello(pool_);
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kCredentials);
  EXPECT_THAT(answer.refusal->detail,
              HasSubstr("uid " + std::to_string(geteuid() + 1)));
}

TEST_F(AttachServerTest, DrainingKeepsTheAttachedEngine) {
  Start(Options());
  RawPeer engine(path_);
  ASSERT_NE(AttachPeer(engine), 0u);
  server_->RefuseNew();
  RawPeer late(path_);
  late.SendHello(pool_);
  const auto answer = late.Receive();
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->reason, RefusalReason::kDraining);
  EXPECT_TRUE(server_->state().peer.has_value());
  EXPECT_FALSE(server_->WaitDetached(milliseconds(0)));
  engine.Close();
  EXPECT_TRUE(server_->WaitDetached(kTestDeadline));
}

TEST_F(AttachServerTest, TalkingAfterTheHelloDetaches) {
  Start(Options());
  RawPeer engine(path_);
  ASSERT_NE(AttachPeer(engine), 0u);
  engine.SendHello(pool_);
  EXPECT_TRUE(server_->WaitDetached(kTestDeadline));
  EXPECT_TRUE(engine.Receive().closed);
}

TEST_F(AttachServerTest, EngineThatLeftBeforeTheAnswerIsNeverAttached) {
  AttachServerOptions options = Options();
  options.check_peer = gate_.Check();
  Start(std::move(options));
  for (int i = 0; i < 5; ++i) {
    RawPeer hasty(path_);
    hasty.SendHello(pool_);
  }
  ASSERT_TRUE(gate_.AwaitReached());
  RawPeer engine(path_);
  engine.SendHello(pool_);
  gate_.Open();
  EXPECT_TRUE(engine.Receive().accepted.has_value());
  EXPECT_EQ(server_->state().attaches, 1u);
  EXPECT_EQ(server_->state().detaches, 0u);
}

TEST_F(AttachServerTest, ReplacesAStaleSocketAndRemovesItsOwn) {
  {
    auto stale = Listen(path_, 1);
    ASSERT_TRUE(stale.ok());
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  Start(Options());
  RawPeer engine(path_);
  EXPECT_NE(AttachPeer(engine), 0u);
  server_->Stop();
  EXPECT_TRUE(engine.Receive().closed);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(server_->state().peer.has_value());
}

TEST_F(AttachServerTest, RespondsWhileItRuns) {
  Start(Options());
  EXPECT_TRUE(server_->Responds(kTestDeadline));
  server_->Stop();
  EXPECT_FALSE(server_->Responds(milliseconds(0)));
}

TEST_F(AttachServerTest, StartNamesWhatIsWrong) {
  AttachServerOptions options = Options();
  options.staging_slots = 3;
  EXPECT_THAT(std::string(AttachServer::Start(options).status().message()),
              HasSubstr("3 staging slots"));
  options = Options();
  options.socket_path = dir_.path() + "/absent/attach.sock";
  EXPECT_THAT(std::string(AttachServer::Start(options).status().message()),
              HasSubstr("absent/attach.sock"));
  options.socket_path = "/" + std::string(200, 'x');
  EXPECT_THAT(std::string(AttachServer::Start(options).status().message()),
              HasSubstr("107 bytes"));
}

}  // namespace
}  // namespace holdfast::attach
