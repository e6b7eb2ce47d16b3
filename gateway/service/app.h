// What the endpoints of one gateway share.
#ifndef HOLDFAST_GATEWAY_SERVICE_APP_H_
#define HOLDFAST_GATEWAY_SERVICE_APP_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <random>

#include "boost/asio/io_context.hpp"
#include "boost/asio/thread_pool.hpp"
#include "gateway/engine/engine_link.h"
#include "gateway/http/server.h"
#include "gateway/openai/debug_answers.h"
#include "gateway/service/api_keys.h"
#include "gateway/service/cache_link.h"
#include "gateway/service/config.h"
#include "gateway/service/metrics.h"
#include "gateway/service/record_cache.h"

namespace holdfast::gateway {

// Owned by Gateway; lives as long as any handler. Used on the io thread, except
// where a member's own header says otherwise.
struct App {
  GatewayConfig config;
  ApiKeys keys;
  ApiKeys admin_tokens;
  std::unique_ptr<const openai::DebugAnswers> answers;  // null: none
  boost::asio::io_context* io = nullptr;
  boost::asio::thread_pool* workers = nullptr;
  std::unique_ptr<EngineLink> engine;
  std::unique_ptr<CacheLink> cache;
  std::unique_ptr<http::Server> server;
  GatewayMetrics metrics;
  RecordCache records;
  std::atomic<bool> giving_memory_back{false};     // a worker has been told to
  std::mt19937_64 random{std::random_device{}()};  // ids and default seeds

  std::chrono::milliseconds engine_wait() const {
    return std::chrono::milliseconds(config.engine_wait_ms);
  }
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_APP_H_
