// Channels to daemons of this machine.
#ifndef HOLDFAST_SHARED_LOCAL_CHANNEL_H_
#define HOLDFAST_SHARED_LOCAL_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace holdfast {

// A channel to a Unix socket, which need not exist yet. gRPC's own back-off
// grows to two minutes; a daemon that comes back is found within `retry`.
std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket,
                                            std::chrono::milliseconds retry);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_LOCAL_CHANNEL_H_
