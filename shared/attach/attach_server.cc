#include "shared/attach/attach_server.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast::attach {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Connections that the kernel holds until they are accepted.
constexpr int kBacklog = 128;

// Random, so that a call meant for an earlier attach cannot match this one.
absl::StatusOr<std::uint64_t> RandomEpoch() {
  std::uint64_t epoch = 0;
  while (epoch == 0) {
    if (getrandom(&epoch, sizeof(epoch), 0) != sizeof(epoch))
      return absl::ErrnoToStatus(errno, "random epoch");
  }
  return epoch;
}

// The kernel's word; the engine's own where the kernel has none (another pid
// namespace).
std::uint32_t PidOf(const Credentials& peer, const Hello& hello) {
  return peer.pid != 0 ? static_cast<std::uint32_t>(peer.pid) : hello.pid;
}

}  // namespace

std::uint64_t AttachServerState::AllRefusals() const {
  return std::accumulate(refusals.begin(), refusals.end(), std::uint64_t{0});
}

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(
    AttachServerOptions options) {
  if (options.staging == nullptr || options.staging_slots == 0 ||
      options.staging->bytes() % options.staging_slots != 0) {
    return absl::InvalidArgumentError(
        fmt::format("attach server: {} staging slots do not divide the staging",
                    options.staging_slots));
  }
  absl::StatusOr<WakeFd> wake = WakeFd::Create();
  if (!wake.ok()) return wake.status();
  absl::StatusOr<UniqueFd> listener = Listen(options.socket_path, kBacklog);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<AttachServer> server(new AttachServer(
      std::move(options), *std::move(listener), *std::move(wake)));
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

AttachServer::AttachServer(AttachServerOptions options, UniqueFd listener,
                           WakeFd wake)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      wake_(std::move(wake)) {}

AttachServer::~AttachServer() { Stop(); }

AttachServerState AttachServer::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

std::shared_ptr<const MappedArena> AttachServer::pool(
    std::uint64_t epoch) const {
  std::lock_guard lock(mutex_);
  if (!state_.peer || state_.peer->epoch != epoch) return nullptr;
  return pool_;
}

void AttachServer::RefuseNew() {
  std::lock_guard lock(mutex_);
  state_.draining = true;
}

bool AttachServer::WaitDetached(milliseconds deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, deadline,
                           [this] { return !state_.peer.has_value(); });
}

bool AttachServer::Responds(milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = ++probes_asked_;
  wake_.Set();
  return changed_.wait_for(lock, deadline,
                           [this, mine] { return probes_seen_ >= mine; });
}

void AttachServer::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.Set();
  if (thread_.joinable()) thread_.join();
}

void AttachServer::Run() {
  while (PollOnce()) {
  }
  half_open_.clear();
  if (attachment_) Detach("the cache service stops");
  listener_.reset();
  unlink(options_.socket_path.c_str());
}

int AttachServer::PollTimeout(steady_clock::time_point now) const {
  auto until = steady_clock::time_point::max();
  if (!half_open_.empty()) until = half_open_.front().deadline;
  if (accept_after_ > now) until = std::min(until, accept_after_);
  if (until == steady_clock::time_point::max()) return -1;  // wake_ ends it
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

bool AttachServer::PollOnce() {
  const auto now = steady_clock::now();
  // A negative descriptor is skipped by poll.
  std::vector<pollfd> polled = {
      {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
      {.fd = attachment_ ? attachment_->socket.get() : -1,
       .events = POLLIN,
       .revents = 0},
      {.fd = accept_after_ > now ? -1 : listener_.get(),
       .events = POLLIN,
       .revents = 0}};
  for (const HalfOpen& connection : half_open_)
    polled.push_back(
        {.fd = connection.socket.get(), .events = POLLIN, .revents = 0});
  if (poll(polled.data(), polled.size(), PollTimeout(now)) < 0 &&
      errno != EINTR) {
    spdlog::error("attach server: poll: {}", std::strerror(errno));
    return false;
  }
  if (polled[0].revents != 0) {
    wake_.Clear();
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    probes_seen_ = probes_asked_;
    changed_.notify_all();
  }
  // An end before a beginning: a restarted engine must not meet its old self.
  if (polled[1].revents != 0) WatchAttached();
  std::vector<HalfOpen> ready;
  for (std::size_t i = polled.size(); i-- > 3;) {
    if (polled[i].revents == 0) continue;
    const auto at = half_open_.begin() + static_cast<std::ptrdiff_t>(i - 3);
    ready.push_back(std::move(*at));
    half_open_.erase(at);
  }
  std::reverse(ready.begin(), ready.end());  // oldest first
  for (HalfOpen& connection : ready) ReadHello(std::move(connection));
  DropLate(steady_clock::now());
  if (polled[2].revents != 0) Accept();
  return true;
}

void AttachServer::Accept() {
  // Bounded, so that a flood does not keep the attached engine unwatched.
  for (std::size_t i = 0; i < options_.max_half_open; ++i) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      spdlog::warn("attach server: accept: {}", std::strerror(errno));
      // Out of descriptors or memory: the connection stays in the queue, so
      // accepting again at once would spin.
      accept_after_ = steady_clock::now() + deadlines::kAttachRetry;
      return;
    }
    HalfOpen connection = {
        .socket = std::move(socket),
        .peer = {},
        .credentials = absl::OkStatus(),
        .deadline = steady_clock::now() + options_.handshake_deadline};
    absl::StatusOr<Credentials> peer = PeerOf(connection.socket.get());
    if (peer.ok()) connection.peer = *peer;
    connection.credentials =
        peer.ok() ? options_.check_peer(*peer) : peer.status();
    // An engine sends its hello as it connects: it is served now, whoever else
    // waits in silence.
    ReadHello(std::move(connection));
  }
}

void AttachServer::DropLate(TimePoint now) {
  while (!half_open_.empty() && half_open_.front().deadline <= now) {
    Refuse(half_open_.front(),
           {.reason = RefusalReason::kTooLate,
            .detail = fmt::format("no hello within {} ms",
                                  options_.handshake_deadline.count())});
    half_open_.erase(half_open_.begin());
  }
}

void AttachServer::WatchAttached() {
  const auto packet = ReceivePacket(attachment_->socket.get());
  if (packet.ok() && !packet->has_value()) return;
  if (!packet.ok() || (*packet)->Closed()) {
    Detach("its socket closed");
  } else {
    Detach("it sent a packet after its hello");
  }
}

void AttachServer::ReadHello(HalfOpen connection) {
  const auto packet = ReceivePacket(connection.socket.get());
  if (packet.ok() && !packet->has_value()) {
    Keep(std::move(connection));
    return;
  }
  if (!packet.ok() || (*packet)->Closed()) {
    Refuse(connection, {.reason = RefusalReason::kMalformed,
                        .detail = "closed without a hello"});
    return;
  }
  auto verdict = Judge(connection, **packet);
  if (const auto* refusal = std::get_if<Refusal>(&verdict)) {
    Refuse(connection, *refusal);
  } else {
    Attach(std::move(connection), std::get<Admitted>(std::move(verdict)));
  }
}

void AttachServer::Keep(HalfOpen connection) {
  if (half_open_.size() >= options_.max_half_open) {
    Refuse(half_open_.front(),
           {.reason = RefusalReason::kTooLate,
            .detail = "too many connections without hello"});
    half_open_.erase(half_open_.begin());
  }
  const auto at = std::find_if(half_open_.begin(), half_open_.end(),
                               [&](const HalfOpen& other) {
                                 return other.deadline > connection.deadline;
                               });
  half_open_.insert(at, std::move(connection));
}

std::variant<AttachServer::Admitted, Refusal> AttachServer::Judge(
    const HalfOpen& connection, const Packet& packet) const {
  if (!connection.credentials.ok()) {
    return Refusal{.reason = RefusalReason::kCredentials,
                   .detail = std::string(connection.credentials.message())};
  }
  auto parsed = ParseHello(packet.bytes);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return *refusal;
  const Hello& hello = std::get<Hello>(parsed);
  if (packet.truncated || packet.descriptors.size() > 1) {
    return Refusal{.reason = RefusalReason::kMalformed,
                   .detail = "hello: more than one packet takes"};
  }
  if (hello.arena_kind != ArenaKind::kHost) {
    return Refusal{
        .reason = RefusalReason::kArena,
        .detail = fmt::format("arena kind {} is not known here",
                              static_cast<std::uint32_t>(hello.arena_kind))};
  }
  const AttachServerState now = state();
  if (now.draining) {
    return Refusal{.reason = RefusalReason::kDraining,
                   .detail = "the cache service is stopping"};
  }
  if (now.peer) {
    return Refusal{
        .reason = RefusalReason::kBusy,
        .attached_pid = now.peer->pid,
        .detail = fmt::format("engine pid {} is attached", now.peer->pid)};
  }
  if (packet.descriptors.empty()) {
    return Refusal{.reason = RefusalReason::kArena,
                   .detail = "the hello came without the pool's descriptor"};
  }
  auto pool = MappedArena::MapReadOnly(
      fmt::format("pool of engine pid {}", PidOf(connection.peer, hello)),
      packet.descriptors[0].get(), hello.pool_bytes,
      ArenaWriters::kCreatorOnly);
  if (!pool.ok()) {
    return Refusal{.reason = RefusalReason::kArena,
                   .detail = std::string(pool.status().message())};
  }
  return Admitted{.hello = hello, .pool = *std::move(pool)};
}

void AttachServer::Attach(HalfOpen connection, Admitted admitted) {
  const Hello& hello = admitted.hello;
  absl::StatusOr<std::uint64_t> epoch = RandomEpoch();
  if (!epoch.ok()) {
    spdlog::error("attach server: {}", epoch.status().ToString());
    return;  // the engine sees a closed socket and tries again
  }
  Accepted answer;
  answer.pid = static_cast<std::uint32_t>(getpid());
  answer.epoch = *epoch;
  answer.staging_bytes = options_.staging->bytes();
  answer.staging_slots = options_.staging_slots;
  const AttachedPeer peer = {.pid = PidOf(connection.peer, hello),
                             .epoch = *epoch,
                             .fingerprint = hello.fingerprint,
                             .pool_bytes = hello.pool_bytes,
                             .since = steady_clock::now()};
  {
    // The engine may call with its epoch as soon as it has the answer, so both
    // become visible together. The send does not wait.
    std::lock_guard lock(mutex_);
    const absl::Status sent = SendPacket(
        connection.socket.get(), BytesOf(answer), options_.staging->fd());
    if (!sent.ok()) return;  // it gave up before we read its hello
    state_.peer = peer;
    pool_ = std::make_shared<const MappedArena>(std::move(admitted.pool));
    ++state_.attaches;
  }
  attachment_.emplace(Attachment{.socket = std::move(connection.socket)});
  last_logged_refusal_ = {};
  spdlog::info("engine attached pid={} epoch={:016x} pool_bytes={}", peer.pid,
               peer.epoch, peer.pool_bytes);
}

void AttachServer::Refuse(const HalfOpen& connection, const Refusal& refusal) {
  {
    std::lock_guard lock(mutex_);
    ++state_.refusals[static_cast<std::size_t>(refusal.reason)];
  }
  // A refused engine tries again twice a second: one line for all its tries.
  const std::pair key(static_cast<std::uint32_t>(connection.peer.pid),
                      refusal.reason);
  if (key != last_logged_refusal_) {
    last_logged_refusal_ = key;
    spdlog::warn("attach refused pid={} reason={} detail=\"{}\"", key.first,
                 RefusalName(refusal.reason), refusal.detail);
  }
  // Lost when the peer takes nothing: then it sees the socket close.
  (void)SendPacket(connection.socket.get(), BytesOf(Encode(refusal)), -1);
}

void AttachServer::Detach(const char* why) {
  attachment_.reset();
  AttachedPeer peer;
  std::shared_ptr<const MappedArena> pool;  // unmapped outside the lock
  {
    std::lock_guard lock(mutex_);
    pool = std::move(pool_);
    peer = *state_.peer;
    state_.peer.reset();
    ++state_.detaches;
    changed_.notify_all();
  }
  if (options_.on_detach) options_.on_detach(peer.epoch);
  const auto attached = std::chrono::duration_cast<milliseconds>(
      steady_clock::now() - peer.since);
  spdlog::info("engine detached pid={} epoch={:016x} attached_ms={}: {}",
               peer.pid, peer.epoch, attached.count(), why);
}

}  // namespace holdfast::attach
