// The ids of words met lately. Bounded: a fixed table in which a new word
// takes the place of an old one.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_WORD_CACHE_H_
#define HOLDFAST_GATEWAY_TOKENIZER_WORD_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace holdfast::gateway {

// Thread-safe. About 1 MiB.
class WordCache {
 public:
  WordCache();

  // Appends the ids of `word`; false when it is not here.
  bool Find(std::string_view word, std::vector<std::uint32_t>* ids) const;
  // Words too long for a slot are not kept.
  void Put(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 14;
  static constexpr std::size_t kMutexes = 64;

  struct Slot {
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;  // 0: empty slot
    std::array<char, 30> word{};
    std::array<std::uint32_t, 8> ids{};
  };
  static_assert(sizeof(Slot) == 64);

  static std::size_t SlotOf(std::string_view word);
  std::mutex& MutexOf(std::size_t slot) const {
    return mutexes_[slot % kMutexes];
  }

  mutable std::array<std::mutex, kMutexes> mutexes_;
  std::vector<Slot> slots_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_WORD_CACHE_H_
