// The whole gateway: HTTP server, link to the engine, worker threads.
#ifndef HOLDFAST_GATEWAY_SERVICE_GATEWAY_H_
#define HOLDFAST_GATEWAY_SERVICE_GATEWAY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/engine/engine_link.h"
#include "gateway/http/server.h"
#include "gateway/service/config.h"
#include "shared/deadlines.h"

namespace holdfast::gateway {

// Limits and timings that flags do not set; tests make them short.
struct GatewayTimings {
  http::ServerLimits http;
  EngineLinkOptions engine;
  // How long a stop waits for the io thread to take a task.
  std::chrono::milliseconds io = deadlines::kControl;
};

// Serves from Start until destroyed. Methods may be called from any one thread
// that is not the gateway's.
class Gateway {
 public:
  // Listens and starts its threads. INVALID_ARGUMENT for a configuration that
  // cannot be; another code where the system refuses (port in use).
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(
      const GatewayConfig& config, const GatewayTimings& timings = {});
  // Cuts what still runs. An io thread that does not answer is left behind,
  // with all that it uses, until the process ends.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  std::uint16_t port() const;
  // Counts up while the io thread turns: a watchdog's proof of life.
  std::uint64_t heartbeat() const;
  // Why the gateway cannot go on, once it knows.
  std::optional<absl::Status> fatal() const;

  // Accepts nothing more and lets running answers end (requests that wait for
  // an absent engine are refused); true when all did before `give_up` said so
  // (asked every few ms). False at once when the io thread does not answer.
  bool Drain(const std::function<bool()>& give_up);

 private:
  struct Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_GATEWAY_H_
