// The arena probe's second process, against the fake runtime. Started without a
// socket it ends at once: a peer that does not answer.
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/ipc/arena_probe.h"

int main(int argc, char** argv) {
  const std::size_t name = std::strlen(holdfast::kernels::cuda::kIpcPeerFlag);
  if (argc != 2 || std::strlen(argv[1]) <= name + 1) return EXIT_FAILURE;
  return holdfast::kernels::cuda::RunIpcPeer(std::atoi(argv[1] + name + 1));
}
