#include "shared/attach/attach_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/paths.h"
#include "shared/daemon.h"
#include "shared/grpc_status.h"
#include "shared/local_channel.h"
#include "spdlog/spdlog.h"

namespace holdfast::attach {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using State = AttachLink::State;

void ToProto(const DevicePool& pool, v1::DevicePool* out) {
  const DeviceMemoryHandle& memory = pool.memory;
  out->set_ipc_handle(memory.ipc.data(), memory.ipc.size());
  out->set_device_uuid(memory.device_uuid.data(), memory.device_uuid.size());
  out->set_bytes(memory.bytes);
  out->set_exporter_pid(memory.exporter_pid);
  out->set_exporter_start(memory.exporter_start);
  out->set_block_count(pool.block_count);
  out->set_check_offset_bytes(pool.check_offset);
}

// Why not; empty: it has read what the pool's owner knows to be there.
std::string WhyNotMapped(const DevicePool& pool,
                         const v1::AnnounceLayoutResponse& response) {
  const std::string& read = response.device_check();
  if (read.size() != pool.check.size()) {
    return response.device_refused().empty()
               ? "it knows no pools on devices"
               : std::string(response.device_refused());
  }
  return std::equal(pool.check.begin(), pool.check.end(),
                    reinterpret_cast<const std::uint8_t*>(read.data()))
             ? ""
             : "it read other bytes than were written";
}

v1::AnnounceLayoutRequest LayoutRequest(const AttachClientOptions& options,
                                        std::uint64_t epoch) {
  v1::AnnounceLayoutRequest request;
  request.set_epoch(epoch);
  request.set_fingerprint(options.fingerprint.data(),
                          options.fingerprint.size());
  request.set_model_name(options.model_name);
  v1::CacheLayout& layout = *request.mutable_layout();
  for (const View& view : options.layout.views) {
    v1::View& out = *layout.add_views();
    out.set_name(view.name);
    out.set_bytes_per_token(view.bytes_per_token);
    out.set_parts(view.parts);
  }
  for (const Section& section : options.layout.sections) {
    v1::Section& out = *layout.add_sections();
    out.set_name(section.name);
    out.set_bytes(section.bytes);
  }
  layout.set_block_tokens(kBlockTokens);
  layout.set_grid_tokens(options.layout.grid_tokens);
  layout.set_block_bytes(options.layout.BlockBytes());
  layout.set_block_count(options.block_count);
  request.set_lease_table_offset_bytes(options.lease_table_offset);
  request.set_lease_slots(options.lease_slots);
  if (options.device_pool) {
    ToProto(*options.device_pool, request.mutable_device_pool());
  }
  request.set_device_pool_bytes(options.device_pool_bytes);
  return request;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachClient>> AttachClient::Start(
    AttachClientOptions options) {
  absl::StatusOr<WakeFd> wake = WakeFd::Create();
  if (!wake.ok()) return wake.status();
  std::unique_ptr<AttachClient> client(
      new AttachClient(std::move(options), *std::move(wake)));
  client->thread_ = std::thread([raw = client.get()] { raw->Run(); });
  return client;
}

AttachClient::AttachClient(AttachClientOptions options, WakeFd wake)
    : options_(std::move(options)), wake_(std::move(wake)) {
  link_ = {.state = State::kDetached, .detail = "not tried yet"};
}

AttachClient::~AttachClient() { Stop(); }

std::shared_ptr<const AttachSession> AttachClient::session() const {
  std::lock_guard lock(mutex_);
  return session_;
}

void AttachClient::SetSession(std::shared_ptr<AttachSession> session) {
  std::shared_ptr<AttachSession> old;
  {
    std::lock_guard lock(mutex_);
    old = std::exchange(session_, std::move(session));
  }
  if (old != nullptr) old->open = false;
}

AttachLink AttachClient::link() const {
  std::lock_guard lock(mutex_);
  return link_;
}

void AttachClient::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (calling_ != nullptr) calling_->TryCancel();
  }
  wake_.Set();
  if (thread_.joinable()) thread_.join();
}

void AttachClient::Run() {
  do {
    const End end = AttachAndWatch();
    Publish(end.state, end.detail);
  } while (WaitFor(-1, options_.retry) != Event::kStopped);
  std::lock_guard lock(mutex_);
  link_.state = State::kOff;
  link_.detail = "stopped";
}

AttachClient::End AttachClient::AttachAndWatch() {
  auto outcome = Handshake();
  if (!outcome.ok())
    return {State::kDetached, std::string(outcome.status().message())};
  if (const auto* refusal = std::get_if<Refusal>(&*outcome))
    return {State::kRefused, refusal->detail};
  auto& attachment = std::get<Attachment>(*outcome);
  const auto channel =
      LocalChannel(CacheSocketPath(options_.run_dir), options_.retry);
  const auto not_mapped = Announce(attachment.answer, channel);
  if (!not_mapped.ok())
    return {State::kDetached, std::string(not_mapped.status().message())};
  const std::string peer =
      fmt::format("cache service pid {}", attachment.answer.pid);
  auto session = std::make_shared<AttachSession>(
      attachment.answer.epoch, attachment.answer.staging_slots,
      std::move(attachment.staging), channel);
  session->device_mapped =
      options_.device_pool.has_value() && not_mapped->empty();
  SetSession(std::move(session));
  Publish(State::kAttached, peer);
  // The open socket is the attach: its end, or a packet that nobody has to
  // send, ends it.
  (void)WaitFor(attachment.socket.get(), std::nullopt);
  SetSession(nullptr);
  return {State::kDetached, peer + " went away"};
}

absl::StatusOr<std::variant<AttachClient::Attachment, Refusal>>
AttachClient::Handshake() {
  absl::StatusOr<UniqueFd> socket = Connect(AttachSocketPath(options_.run_dir));
  if (!socket.ok()) return socket.status();
  absl::StatusOr<Credentials> peer = PeerOf(socket->get());
  if (!peer.ok()) return peer.status();
  // Before the hello: it gives the peer our memory to read.
  if (absl::Status status = options_.check_peer(*peer); !status.ok())
    return status;
  Hello hello;
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.pool_bytes = options_.pool->bytes();
  hello.fingerprint = options_.fingerprint;
  if (absl::Status status =
          SendPacket(socket->get(), BytesOf(hello), options_.pool->fd());
      !status.ok()) {
    return status;
  }
  switch (WaitFor(socket->get(), options_.handshake_deadline)) {
    case Event::kReadable:
      return ReadAnswer(*std::move(socket));
    case Event::kTimeout:
      return absl::DeadlineExceededError(
          fmt::format("cache service pid {}: no answer to the hello within {} "
                      "ms",
                      peer->pid, options_.handshake_deadline.count()));
    case Event::kStopped:
      break;
  }
  return absl::CancelledError("the engine stops");
}

absl::StatusOr<std::variant<AttachClient::Attachment, Refusal>>
AttachClient::ReadAnswer(UniqueFd socket) {
  absl::StatusOr<std::optional<Packet>> packet = ReceivePacket(socket.get());
  if (!packet.ok()) return packet.status();
  if (!packet->has_value() || (*packet)->Closed())
    return absl::UnavailableError("cache service closed without an answer");
  auto answer = ParseAnswer((*packet)->bytes);
  if (!answer.ok()) return answer.status();
  if (auto* refusal = std::get_if<Refusal>(&*answer)) return *refusal;
  const Accepted& accepted = std::get<Accepted>(*answer);
  if ((*packet)->descriptors.size() != 1) {
    return absl::InvalidArgumentError(
        fmt::format("attach answer of cache service pid {}: {} descriptors, "
                    "expected the staging memory's",
                    accepted.pid, (*packet)->descriptors.size()));
  }
  auto staging = MappedArena::MapReadOnly(
      fmt::format("staging of cache service pid {}", accepted.pid),
      (*packet)->descriptors[0].get(), accepted.staging_bytes,
      ArenaWriters::kEveryHolder);
  if (!staging.ok()) return staging.status();
  return Attachment{.socket = std::move(socket),
                    .staging = *std::move(staging),
                    .answer = accepted};
}

absl::StatusOr<std::string> AttachClient::Announce(
    const Accepted& answer, const std::shared_ptr<grpc::Channel>& channel) {
  const std::string path = CacheSocketPath(options_.run_dir);
  const auto& pool = options_.device_pool;
  auto stub = v1::Cache::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       options_.announce_deadline +
                       (pool ? deadlines::kDeviceMap : milliseconds(0)));
  context.set_wait_for_ready(true);  // the attach socket may open first
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("the engine stops");
    calling_ = &context;
  }
  v1::AnnounceLayoutResponse response;
  const grpc::Status status = stub->AnnounceLayout(
      &context, LayoutRequest(options_, answer.epoch), &response);
  {
    std::lock_guard lock(mutex_);
    calling_ = nullptr;
  }
  if (!status.ok()) {
    return FromGrpcStatus(status, fmt::format("announce layout to {}", path));
  }
  if (!pool) return "";
  const std::string why_not = WhyNotMapped(*pool, response);
  if (why_not.empty()) {
    spdlog::info(
        "arena kind=cuda_ipc reason=\"cache service pid {} mapped the pool and "
        "read it\"",
        answer.pid);
  } else {
    spdlog::warn(
        "arena kind=pinned reason=\"no cuda_ipc: cache service pid {}: {}\"",
        answer.pid, why_not);
  }
  return why_not;
}

AttachClient::Event AttachClient::WaitFor(int fd,
                                          std::optional<milliseconds> timeout) {
  const auto start = steady_clock::now();
  while (true) {
    pollfd polled[2] = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                        {.fd = fd, .events = POLLIN, .revents = 0}};
    int wait_ms = -1;
    if (timeout) {
      const auto left = std::chrono::ceil<milliseconds>(start + *timeout -
                                                        steady_clock::now());
      wait_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    const int ready = poll(polled, 2, wait_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (polled[0].revents != 0) return Event::kStopped;
    if (ready == 0) return Event::kTimeout;
    return Event::kReadable;
  }
}

void AttachClient::Publish(State state, const std::string& detail) {
  AttachLink now;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;  // what Stop() broke off is no news
    now = link_;
    now.state = state;
    now.detail = detail;
    if (state == State::kAttached) ++now.attaches;
    if (now == link_) return;  // one line for all tries that end alike
    link_ = now;
  }
  if (state == State::kAttached) {
    spdlog::info("attached to {}", detail);
  } else {
    spdlog::warn("no cache service: {}", detail);
  }
  if (options_.on_change) options_.on_change(now);
}

}  // namespace holdfast::attach
