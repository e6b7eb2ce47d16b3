#include "gateway/service/cache_link.h"

#include <utility>

#include "shared/deadlines.h"
#include "shared/local_channel.h"

namespace holdfast::gateway {

namespace asio = boost::asio;

CacheLink::CacheLink(boost::asio::io_context& io, const std::string& socket,
                     std::shared_ptr<CallTracker> tracker)
    : io_(io),
      tracker_(std::move(tracker)),
      stub_(v1::CacheAdmin::NewStub(
          LocalChannel(socket, deadlines::kEngineRetry))) {}

boost::asio::awaitable<absl::StatusOr<std::string>> CacheLink::Metrics() {
  auto answer = co_await AwaitUnary<v1::CacheMetrics>(
      io_.get_executor(), tracker_, "cache service Metrics",
      deadlines::kControl, v1::CacheMetricsRequest(),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->Metrics(context, request, response, std::move(done));
      });
  if (!answer.ok()) co_return answer.status();
  co_return std::move(*answer->mutable_prometheus_text());
}

asio::awaitable<absl::StatusOr<v1::CacheStats>> CacheLink::Stats() {
  return AwaitUnary<v1::CacheStats>(
      io_.get_executor(), tracker_, "cache service Stats", deadlines::kControl,
      v1::CacheStatsRequest(),
      [this](auto* context, auto* request, auto* response, auto done) {
        stub_->async()->Stats(context, request, response, std::move(done));
      });
}

asio::awaitable<absl::StatusOr<v1::CacheClearResponse>> CacheLink::Clear(
    v1::Tier tier) {
  v1::CacheClearRequest request;
  request.set_tier(tier);
  return AwaitUnary<v1::CacheClearResponse>(
      io_.get_executor(), tracker_, "cache service Clear",
      deadlines::kCacheClear, std::move(request),
      [this](auto* context, auto* message, auto* response, auto done) {
        stub_->async()->Clear(context, message, response, std::move(done));
      });
}

}  // namespace holdfast::gateway
