// What the tests of the attach share: a run directory, a peer that says
// anything, a recorder of a client's states. Every wait has a deadline.
#ifndef HOLDFAST_SHARED_ATTACH_TEST_PEERS_H_
#define HOLDFAST_SHARED_ATTACH_TEST_PEERS_H_

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/attach_client.h"
#include "shared/attach/packet_socket.h"
#include "shared/attach/protocol.h"

namespace holdfast::attach {

// Longer than anything takes that works.
inline constexpr std::chrono::seconds kTestDeadline{30};

inline bool WaitReadable(int fd) {
  pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
  const std::chrono::milliseconds deadline = kTestDeadline;
  return poll(&polled, 1, static_cast<int>(deadline.count())) == 1;
}

// A directory of mode 0700 that is gone with the object.
class TestDir {
 public:
  TestDir() {
    std::string name = testing::TempDir() + "hfXXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ~TestDir() { std::filesystem::remove_all(path_); }
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline MemfdArena TestArena(const std::string& name, std::uint64_t bytes,
                            ArenaWriters writers) {
  auto arena = MemfdArena::Create(name, bytes, writers);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

// An engine's end of a connection, without an engine's manners.
class RawPeer {
 public:
  explicit RawPeer(const std::string& path) {
    auto socket = Connect(path);
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *std::move(socket);
  }
  int fd() const { return socket_.get(); }
  void Close() { socket_.reset(); }

  void Send(std::span<const std::byte> bytes, int descriptor = -1) {
    const absl::Status sent = SendPacket(socket_.get(), bytes, descriptor);
    EXPECT_TRUE(sent.ok()) << sent;
  }
  void SendHello(const MemfdArena& pool) {
    Hello hello;
    hello.pid = 4711;
    hello.pool_bytes = pool.bytes();
    hello.fingerprint.fill(0xab);
    Send(BytesOf(hello), pool.fd());
  }

  struct Answer {
    std::optional<Accepted> accepted;
    std::optional<Refusal> refusal;
    std::vector<UniqueFd> descriptors;
    bool closed = false;
  };
  Answer Receive() {
    Answer answer;
    EXPECT_TRUE(WaitReadable(socket_.get())) << "no answer";
    auto packet = ReceivePacket(socket_.get());
    if (!packet.ok() || !packet->has_value() || (*packet)->Closed()) {
      answer.closed = true;
      return answer;
    }
    auto parsed = ParseAnswer((*packet)->bytes);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (!parsed.ok()) return answer;
    if (auto* accepted = std::get_if<Accepted>(&*parsed))
      answer.accepted = *accepted;
    if (auto* refusal = std::get_if<Refusal>(&*parsed))
      answer.refusal = *refusal;
    answer.descriptors = std::move((*packet)->descriptors);
    return answer;
  }

 private:
  UniqueFd socket_;
};

// Every state that a client was in, in order.
class LinkRecorder {
 public:
  std::function<void(const AttachLink&)> Callback() {
    return [this](const AttachLink& link) {
      std::lock_guard lock(mutex_);
      links_.push_back(link);
      changed_.notify_all();
    };
  }
  // The first state after the last one awaited that `wanted` likes; it may
  // come later. Nothing when it does not come.
  std::optional<AttachLink> Await(
      const std::function<bool(const AttachLink&)>& wanted) {
    std::unique_lock lock(mutex_);
    std::optional<AttachLink> found;
    changed_.wait_for(lock, kTestDeadline, [&] {
      while (!found && next_ < links_.size()) {
        if (wanted(links_[next_])) found = links_[next_];
        ++next_;
      }
      return found.has_value();
    });
    return found;
  }
  std::optional<AttachLink> Await(AttachLink::State state) {
    return Await([state](const AttachLink& l) { return l.state == state; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<AttachLink> links_;
  std::size_t next_ = 0;
};

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_TEST_PEERS_H_
