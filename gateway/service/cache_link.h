// The gateway's calls to the cache service, which may be absent.
#ifndef HOLDFAST_GATEWAY_SERVICE_CACHE_LINK_H_
#define HOLDFAST_GATEWAY_SERVICE_CACHE_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "gateway/engine/grpc_await.h"
#include "holdfast/v1/cache.grpc.pb.h"

namespace holdfast::gateway {

// On the io thread. `tracker` counts its calls.
class CacheLink {
 public:
  CacheLink(boost::asio::io_context& io, const std::string& socket,
            std::shared_ptr<CallTracker> tracker);

  // Its metrics as Prometheus text; UNAVAILABLE at once when it is not there.
  boost::asio::awaitable<absl::StatusOr<std::string>> Metrics();
  boost::asio::awaitable<absl::StatusOr<v1::CacheStats>> Stats();
  // Every entry of the tier, pinned ones too. Waits for the files to be gone,
  // no longer than deadlines::kCacheClear.
  boost::asio::awaitable<absl::StatusOr<v1::CacheClearResponse>> Clear(
      v1::Tier tier);

 private:
  boost::asio::io_context& io_;
  const std::shared_ptr<CallTracker> tracker_;
  const std::unique_ptr<v1::CacheAdmin::Stub> stub_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_CACHE_LINK_H_
