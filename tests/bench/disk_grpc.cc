// A lookup as an engine makes it: of a cache service of its own, over its
// socket.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/server.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/attach_client.h"
#include "shared/deadlines.h"
#include "tests/bench/disk_bench.h"

namespace holdfast::bench {
namespace {

using std::chrono::steady_clock;

constexpr int kLookups = 5'000;
constexpr std::chrono::milliseconds kLook{1};

// A folder for sockets: their paths must be short, wherever the files are.
class RunFolder {
 public:
  RunFolder() {
    std::string path =
        (std::filesystem::temp_directory_path() / "hf-bench-XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~RunFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: it could not be made
};

absl::StatusOr<std::shared_ptr<const attach::AttachSession>> WaitForSession(
    const attach::AttachClient& client) {
  const auto end = steady_clock::now() + deadlines::kAttach;
  while (steady_clock::now() < end) {
    if (auto session = client.session()) return session;
    std::this_thread::sleep_for(kLook);
  }
  return absl::DeadlineExceededError("attach: " + client.link().detail);
}

v1::LookupRequest RequestOf(const std::vector<PrefixKey>& keys,
                            std::uint64_t epoch) {
  v1::LookupRequest request;
  request.set_epoch(epoch);
  request.mutable_prompt()->set_root(std::string(sizeof(PrefixKey), '\0'));
  std::string& bytes = *request.mutable_prompt()->mutable_block_keys();
  for (const PrefixKey& key : keys)
    bytes.append(reinterpret_cast<const char*>(key.data()), key.size());
  return request;
}

}  // namespace

absl::Status MeasureLookupOverGrpc(
    const std::string& folder, const CacheLayout& layout,
    const std::vector<std::vector<PrefixKey>>& prompts, std::size_t candidates,
    DiskBench& bench) {
  const RunFolder run;
  if (run.path().empty())
    return absl::InternalError("no folder for sockets could be made");
  cachesvc::Config config;
  config.run_dir = run.path();
  config.cache_dir = folder;
  config.store_gb = 0;
  config.disk_free_gb = 0;
  config.allow_small_free_space = true;
  auto server = cachesvc::Server::Start(config);
  if (!server.ok()) return server.status();
  auto pool = MemfdArena::Create("holdfast-bench", layout.BlockBytes(),
                                 ArenaWriters::kCreatorOnly);
  if (!pool.ok()) return pool.status();
  attach::AttachClientOptions options;
  options.run_dir = run.path();
  options.pool = &*pool;
  options.model_name = "bench";
  options.layout = layout;
  options.block_count = 1;
  auto client = attach::AttachClient::Start(std::move(options));
  if (!client.ok()) return client.status();
  const auto session = WaitForSession(**client);
  if (!session.ok()) return session.status();
  const auto stub = v1::Cache::NewStub((*session)->channel);
  std::mt19937_64 random(2);
  std::vector<double> us;
  for (int i = 0; i < kLookups; ++i) {
    const v1::LookupRequest request =
        RequestOf(prompts[random() % prompts.size()], (*session)->epoch);
    v1::LookupResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         deadlines::kControl);
    const auto start = steady_clock::now();
    const grpc::Status status = stub->Lookup(&context, request, &response);
    us.push_back(
        std::chrono::duration<double, std::micro>(steady_clock::now() - start)
            .count());
    if (!status.ok()) return absl::InternalError(status.error_message());
    if (static_cast<std::size_t>(response.candidates_size()) != candidates)
      return absl::InternalError("a lookup did not find its anchors");
  }
  bench.latency.push_back(Latency("candidates over gRPC", us));
  return absl::OkStatus();
}

}  // namespace holdfast::bench
