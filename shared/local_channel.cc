#include "shared/local_channel.h"

#include <algorithm>

#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "shared/deadlines.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{50};
constexpr int kMaxMessageBytes = 64 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket,
                                            std::chrono::milliseconds retry) {
  // One reference for the life of the process: when the last channel ends, gRPC
  // shuts itself down and may wait 10 s for a poller of its own, which would
  // hold up the end of a daemon.
  static const bool kept = (grpc_init(), true);
  (void)kept;
  grpc::ChannelArguments arguments;
  const int first = static_cast<int>(std::min(kFirstRetry, retry).count());
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, first);
  // Despite its name also how long an attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(deadlines::kControl.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(retry.count()));
  // Else channels to the same socket share one connection and its back-off.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Key ids of whole conversations come in one message, as they go.
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes);
  return grpc::CreateCustomChannel(
      "unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace holdfast
