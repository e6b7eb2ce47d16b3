#include "gateway/template/python_memory.h"

#include <Python.h>
#include <malloc.h>

#include <cstdlib>
#include <limits>

namespace holdfast::templates {
namespace {

// Small allocations may go this far past the budget: handling a MemoryError
// takes some memory too.
constexpr std::size_t kSmall = 4096;
constexpr std::size_t kSlack = std::size_t{16} << 20;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Guarded by the GIL, which both counted domains are called under.
std::size_t live_bytes = 0;
std::size_t limit_bytes = kNoLimit;

bool Allowed(std::size_t bytes) {
  if (limit_bytes == kNoLimit) return true;
  const std::size_t limit = limit_bytes + (bytes <= kSmall ? kSlack : 0);
  return live_bytes <= limit && bytes <= limit - live_bytes;
}

void* Count(void* pointer) {
  if (pointer != nullptr) live_bytes += malloc_usable_size(pointer);
  return pointer;
}

// Python asks for distinct pointers for empty allocations.
void* Malloc(void*, std::size_t bytes) {
  if (bytes == 0) bytes = 1;
  return Allowed(bytes) ? Count(std::malloc(bytes)) : nullptr;
}

void* Calloc(void*, std::size_t count, std::size_t bytes) {
  if (count == 0 || bytes == 0) count = bytes = 1;
  if (count > kNoLimit / bytes || !Allowed(count * bytes)) return nullptr;
  return Count(std::calloc(count, bytes));
}

void* Realloc(void*, void* pointer, std::size_t bytes) {
  if (bytes == 0) bytes = 1;
  const std::size_t old_bytes =
      pointer == nullptr ? 0 : malloc_usable_size(pointer);
  if (bytes > old_bytes && !Allowed(bytes - old_bytes)) return nullptr;
  void* moved = std::realloc(pointer, bytes);
  if (moved != nullptr) live_bytes -= old_bytes;
  return Count(moved);
}

void Free(void*, void* pointer) {
  if (pointer != nullptr) live_bytes -= malloc_usable_size(pointer);
  std::free(pointer);
}

}  // namespace

void InstallCountedAllocator() {
  PyMemAllocatorEx counted{nullptr, Malloc, Calloc, Realloc, Free};
  PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &counted);
  PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &counted);
}

MemoryBudget::MemoryBudget(std::size_t bytes) {
  limit_bytes =
      bytes < kNoLimit - live_bytes ? live_bytes + bytes : kNoLimit - kSlack;
}

MemoryBudget::~MemoryBudget() { limit_bytes = kNoLimit; }

}  // namespace holdfast::templates
