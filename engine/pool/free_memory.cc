#include "engine/pool/free_memory.h"

#include <fstream>
#include <string>

namespace holdfast::engine {

std::uint64_t AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  while (file >> name) {
    std::uint64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace holdfast::engine
