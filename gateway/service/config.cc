#include "gateway/service/config.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace holdfast::gateway {

void AddFlags(CLI::App& app, GatewayConfig& config) {
  app.add_option("--run-dir", config.run_dir,
                 "folder of the daemons' sockets; gateway.port is written here")
      ->capture_default_str();
  app.add_option("--host", config.host, "address of the HTTP API")
      ->capture_default_str();
  app.add_option("--port", config.port, "port of the HTTP API; 0: a free one")
      ->capture_default_str();
  app.add_option("--api-key", config.api_keys,
                 "accept this key (repeatable); without keys none is asked for")
      ->configurable(false);  // not to be printed with the configuration
  app.add_option("--api-key-file", config.api_key_file,
                 "accept the keys in this file, one a line");
  app.add_option("--admin-token", config.admin_tokens,
                 "allow the cache's statistics and clearing it, from other "
                 "machines too, with this token (repeatable)")
      ->configurable(false);
  app.add_option("--admin-token-file", config.admin_token_file,
                 "likewise with the tokens in this file, one a line");
  app.add_option("--max-body-mb", config.max_body_mb,
                 "largest request body, MiB")
      ->capture_default_str();
  app.add_option("--max-connections", config.max_connections,
                 "connections over this are answered 503")
      ->capture_default_str();
  app.add_option("--workers", config.workers,
                 "threads for templates and tokenization")
      ->capture_default_str();
  app.add_option("--engine-wait-ms", config.engine_wait_ms,
                 "how long a request waits for an absent engine")
      ->capture_default_str();
  app.add_option("--sse-keep-alive-ms", config.sse_keep_alive_ms,
                 "time between comment lines of a silent stream")
      ->capture_default_str();
  app.add_option("--thinking-budget", config.thinking_budget,
                 "tokens of reasoning before it is closed, where a request "
                 "does not say; 0: none; -1: no limit")
      ->check(CLI::Range(-1, std::numeric_limits<std::int32_t>::max()))
      ->capture_default_str();
  app.add_option("--end-align", config.end_align,
                 "serve recorded tokens for answers that clients send back")
      ->capture_default_str();
  app.add_option("--end-align-reasoning", config.end_align_reasoning,
                 "also for those sent back without their reasoning")
      ->capture_default_str();
  app.add_option("--debug-answers", config.debug_answers,
                 "answers to force, JSON lines (needs an engine with --debug)");
  app.add_option("--log-level", config.log_level,
                 "trace, debug, info, warn or error")
      ->capture_default_str();
}

absl::Status Validate(const GatewayConfig& config) {
  const auto in_range = [](const char* flag, std::uint32_t value,
                           std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", value, ": must be from ", low, " to ", high));
  };
  for (const std::string& key : config.api_keys) {
    if (key.empty())
      return absl::InvalidArgumentError("--api-key: must not be empty");
  }
  for (const std::string& token : config.admin_tokens) {
    if (token.empty())
      return absl::InvalidArgumentError("--admin-token: must not be empty");
  }
  absl::Status status = in_range("--max-body-mb", config.max_body_mb, 1, 4096);
  status.Update(
      in_range("--max-connections", config.max_connections, 1, 100000));
  status.Update(in_range("--workers", config.workers, 1, 256));
  status.Update(in_range("--engine-wait-ms", config.engine_wait_ms, 0, 600000));
  status.Update(
      in_range("--sse-keep-alive-ms", config.sse_keep_alive_ms, 1, 600000));
  return status;
}

}  // namespace holdfast::gateway
