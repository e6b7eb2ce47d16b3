#include "cachesvc/cachectl/engine_stats.h"

#include <chrono>
#include <iterator>
#include <map>
#include <string_view>

#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"

namespace holdfast::cachesvc {
namespace {

using Counts = google::protobuf::Map<std::string, std::uint64_t>;

std::string Text(const Counts& counts) {
  const std::map<std::string, std::uint64_t> sorted(counts.begin(),
                                                    counts.end());
  std::string text;
  for (const auto& [name, count] : sorted) {
    if (count == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}",
                   text.empty() ? "" : ", ", Printable(name), count);
  }
  return text.empty() ? "none" : text;
}

double Percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0
             ? 0
             : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// `method` is one of the stub's unary calls.
template <typename Request, typename Response>
absl::StatusOr<Response> Ask(
    const std::string& run_dir,
    grpc::Status (v1::Engine::Stub::*method)(grpc::ClientContext*,
                                             const Request&, Response*)) {
  const std::string path = run_dir + "/engine.sock";
  const auto stub = v1::Engine::NewStub(
      grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadlines::kControl);
  Response response;
  const grpc::Status status =
      (stub.get()->*method)(&context, Request(), &response);
  if (!status.ok())
    return FromGrpcStatus(status, "engine not reachable at " + path);
  return response;
}

}  // namespace

absl::StatusOr<v1::EngineStats> FetchEngineStats(const std::string& run_dir) {
  return Ask(run_dir, &v1::Engine::Stub::Stats);
}

absl::StatusOr<v1::EngineStatus> FetchEngineStatus(const std::string& run_dir) {
  return Ask(run_dir, &v1::Engine::Stub::Status);
}

std::string EngineStatsTable(const absl::StatusOr<v1::EngineStats>& answer) {
  if (!answer.ok()) {
    return fmt::format("{}\n",
                       Printable(std::string(answer.status().message())));
  }
  const v1::EngineStats& stats = *answer;
  const v1::RecentRequests& recent = stats.recent();
  std::string out = "engine\n";
  const auto row = [&out](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "  {:<9} {}\n", name, value);
  };
  row("requests",
      fmt::format("{} running, {} waiting, finished: {}, refused: {}",
                  stats.running_requests(), stats.waiting_requests(),
                  Text(stats.requests_by_finish_reason()),
                  Text(stats.refused_by_reason())));
  row("tokens", fmt::format("prompt: {}; generated {}",
                            Text(stats.prompt_tokens_by_source()),
                            stats.generated_tokens()));
  row("hit rate",
      fmt::format("{:.1f} % of {} prompt tokens, newest {} requests",
                  Percent(recent.hit_tokens(), recent.queried_tokens()),
                  recent.queried_tokens(), recent.requests()));
  row("misses", Text(stats.misses_by_reason()));
  row("resumed", Text(stats.resumes_by_anchor()));
  row("pool",
      fmt::format("{:.1f} % of {} blocks in use, {} of them cached, {} "
                  "evicted, {} anchors",
                  Percent(stats.pool_blocks() - stats.pool_free_blocks(),
                          stats.pool_blocks()),
                  stats.pool_blocks(), stats.pool_cached_blocks(),
                  stats.pool_evictions(), stats.anchors()));
  if (stats.has_responses()) {
    const v1::ResponseCacheStats& responses = stats.responses();
    row("responses",
        fmt::format("{} held, {} of {}, {} hits, {} misses",
                    responses.entries(), HumanBytes(responses.bytes()),
                    HumanBytes(responses.budget_bytes()), responses.hits(),
                    responses.misses()));
  }
  if (stats.has_planner()) {
    const v1::PlannerStats& planner = stats.planner();
    row("planner", fmt::format("chosen: {}; later: {}; too costly: {}",
                               Text(planner.chosen()), Text(planner.lost()),
                               Text(planner.too_costly())));
  }
  return out;
}

}  // namespace holdfast::cachesvc
