#include "tests/cuda_emulation/late_writes.h"

#include <algorithm>
#include <cstring>

namespace holdfast::emulation {

void LateWrites::Begin(std::byte* memory, std::size_t bytes, int threads) {
  memory_ = memory;
  common_.assign(memory, memory + bytes);
  own_.resize(bytes == 0 ? 0 : std::max<std::size_t>(own_.size(), threads));
  for (auto& writes : own_) writes.clear();
}

void LateWrites::Enter(int thread) {
  entered_ = common_.data();
  if (own_[thread].empty()) return;
  for (const Write& write : own_[thread]) memory_[write.at] = write.value;
  shown_.assign(memory_, memory_ + common_.size());
  entered_ = shown_.data();
}

void LateWrites::Leave(int thread) {
  constexpr std::size_t kRun = 64;
  for (std::size_t at = 0; at < common_.size(); at += kRun) {
    const std::size_t bytes = std::min(kRun, common_.size() - at);
    if (std::memcmp(memory_ + at, entered_ + at, bytes) == 0) continue;
    for (std::size_t i = at; i < at + bytes; ++i) {
      if (memory_[i] != entered_[i]) own_[thread].push_back({i, memory_[i]});
    }
  }
  for (const Write& write : own_[thread]) {
    memory_[write.at] = common_[write.at];
  }
}

void LateWrites::Publish(int thread) {
  for (const Write& write : own_[thread]) {
    memory_[write.at] = common_[write.at] = write.value;
  }
  own_[thread].clear();
}

}  // namespace holdfast::emulation
