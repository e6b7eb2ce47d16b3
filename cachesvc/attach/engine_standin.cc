// For process_test: the attach of an engine without the engine. Prints each
// state of its link as a line "STATE ATTACHES DETAIL"; ends with its input.
//   engine_standin RUN_DIR HANDSHAKE_DEADLINE_MS
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shared/arena/memfd_arena.h"
#include "shared/attach/attach_client.h"
#include "shared/log.h"

namespace holdfast {
namespace {

const char* Name(attach::AttachLink::State state) {
  switch (state) {
    case attach::AttachLink::State::kOff:
      return "off";
    case attach::AttachLink::State::kAttached:
      return "attached";
    case attach::AttachLink::State::kDetached:
      return "detached";
    case attach::AttachLink::State::kRefused:
      return "refused";
  }
  return "unknown";
}

int Main(int argc, char** argv) {
  if (argc != 3 || !InitLog("standin", "error").ok()) return 2;
  auto pool =
      MemfdArena::Create("standin-pool", 1 << 20, ArenaWriters::kCreatorOnly);
  if (!pool.ok()) return 1;
  attach::AttachClientOptions options;
  options.run_dir = argv[1];
  options.handshake_deadline = std::chrono::milliseconds(std::atoi(argv[2]));
  options.pool = &*pool;
  options.model_name = "standin";
  options.layout.views = {{.name = "K", .bytes_per_token = 64, .parts = 1}};
  options.block_count = pool->bytes() / options.layout.BlockBytes();
  options.on_change = [](const attach::AttachLink& link) {
    std::printf("%s %llu %s\n", Name(link.state),
                static_cast<unsigned long long>(link.attaches),
                link.detail.c_str());
    std::fflush(stdout);
  };
  auto client = attach::AttachClient::Start(std::move(options));
  if (!client.ok()) return 1;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main(argc, argv); }
