// cachectl: asks the cache service. Exit status: 0, 1 when it cannot be
// reached, 2 for bad usage.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cachesvc/cachectl/render.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/paths.h"
#include "shared/daemon.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"

namespace holdfast::cachesvc {
namespace {

constexpr int kExitUnreachable = 1;
constexpr int kExitUsage = 2;

struct Options {
  std::string run_dir = "/run/holdfast";
  bool json = false;
};

absl::StatusOr<v1::CacheStatus> AskStatus(const std::string& path) {
  const std::string what = "cache service not reachable at " + path;
  absl::StatusOr<std::string> target = UnixTarget(path);
  if (!target.ok()) return target.status();
  auto stub = v1::CacheAdmin::NewStub(
      grpc::CreateChannel(*target, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadlines::kControl);
  v1::CacheStatus status;
  const grpc::Status called = stub->Status(&context, {}, &status);
  if (!called.ok()) return FromGrpcStatus(called, what);
  return status;
}

int ShowStatus(const Options& options) {
  const auto status = AskStatus(attach::CacheSocketPath(options.run_dir));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(status.status().message()).c_str());
    return kExitUnreachable;
  }
  const std::string text =
      options.json ? StatusJson(*status) + "\n" : StatusTable(*status);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? EXIT_SUCCESS : kExitUnreachable;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Inspects Holdfast's cache service", "cachectl");
  app.set_version_flag("--version", HOLDFAST_VERSION);
  app.add_option("--run-dir", options.run_dir, "folder of the daemons' sockets")
      ->capture_default_str();
  app.require_subcommand(1);
  CLI::App* status = app.add_subcommand(
      "status", "the attached engine, its layout, and the tiers");
  status->add_flag("--json", options.json, "print one JSON object");
  status->fallthrough();  // --run-dir may come after the subcommand
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitUsage;
  }
  return ShowStatus(options);
}

}  // namespace
}  // namespace holdfast::cachesvc

int main(int argc, char** argv) { return holdfast::cachesvc::Main(argc, argv); }
