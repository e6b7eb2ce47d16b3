// The gateway's configuration: flags of holdfast-gateway, defaults, checks.
#ifndef HOLDFAST_GATEWAY_SERVICE_CONFIG_H_
#define HOLDFAST_GATEWAY_SERVICE_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "shared/deadlines.h"

namespace holdfast::gateway {

struct GatewayConfig {
  // Where the daemons' sockets are: engine.sock, cache.sock; gateway.port is
  // written here. Mode 0700.
  std::string run_dir = "/run/holdfast";
  // The address of the HTTP API. Anything but loopback should have API keys.
  std::string host = "127.0.0.1";
  // 0 takes any free port.
  std::uint16_t port = 8000;
  // Any of them is accepted; none at all: no key is asked for.
  std::vector<std::string> api_keys;
  // One key a line; empty lines and lines that start with # are skipped.
  std::string api_key_file;
  // Any of them allows what only this machine is allowed otherwise: the cache's
  // statistics and clearing it.
  std::vector<std::string> admin_tokens;
  // As api_key_file.
  std::string admin_token_file;
  // MiB. A prompt of a million tokens is about 4 MiB of text; images need more.
  std::uint32_t max_body_mb = 64;
  // A connection over this is answered 503.
  std::uint32_t max_connections = 1024;
  // Threads for templates and tokenization.
  std::uint32_t workers = 2;
  // ms. How long a request waits for an engine that is absent or loading.
  std::uint32_t engine_wait_ms = deadlines::kEngineAbsent.count();
  // ms. Between two SSE comment lines while nothing else is sent.
  std::uint32_t sse_keep_alive_ms = deadlines::kSseKeepAlive.count();
  // Tokens. Reasoning that is longer is closed by the server, where a request
  // does not say; -1: never.
  std::int32_t thinking_budget = -1;
  // Recorded tokens are served for answers that clients send back.
  bool end_align = true;
  // Also for those that come back without their reasoning.
  bool end_align_reasoning = true;
  // JSON lines: answers to force (gateway/openai/debug_answers.h; debug engines
  // only).
  std::string debug_answers;
  std::string log_level = "info";
};

void AddFlags(CLI::App& app, GatewayConfig& config);

// The first flag that cannot be, by name.
absl::Status Validate(const GatewayConfig& config);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_CONFIG_H_
