#include "kernels/host/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace holdfast::kernels {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2u << 20;
constexpr std::size_t kArenaChunk = 32u << 20;
constexpr std::size_t kArenaAlignment = 64;

}  // namespace

void UnmapMemory::operator()(std::byte* data) const { munmap(data, bytes); }

StatusOr<HostMemory> HostMemory::Make(std::size_t bytes,
                                      std::string_view what) {
  HostMemory memory;
  const std::size_t mapped = (bytes + kPage - 1) / kPage * kPage + kPage;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted(std::string(what) + ": " + std::to_string(bytes) +
                             " bytes of memory: " + std::strerror(errno));
  }
  // A hint: without huge pages everything works, slower.
  if (mapped >= 2 * kHugePage) madvise(data, mapped, MADV_HUGEPAGE);
  memory.data_ = std::unique_ptr<std::byte, UnmapMemory>(
      static_cast<std::byte*>(data), UnmapMemory{mapped});
  memory.bytes_ = bytes;
  return memory;
}

StatusOr<std::shared_ptr<std::byte>> HostArena::Take(std::size_t bytes,
                                                     std::string_view what) {
  if (chunk_ == nullptr || used_ + bytes > chunk_->bytes()) {
    HF_ASSIGN_OR_RETURN(HostMemory memory,
                        HostMemory::Make(std::max(bytes, kArenaChunk), what));
    chunk_ = std::make_shared<HostMemory>(std::move(memory));
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(chunk_, chunk_->data() + used_);
  used_ += (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return piece;
}

}  // namespace holdfast::kernels
