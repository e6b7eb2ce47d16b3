// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011): random bits as a function of a key and a counter, without a state that
// a cancelled or resumed request could lose.
#ifndef HOLDFAST_ENGINE_SAMPLING_PHILOX_H_
#define HOLDFAST_ENGINE_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace holdfast::engine {

inline std::array<std::uint32_t, 4> Philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: the number of output `index` under `seed`.
inline double UniformAt(std::uint64_t seed, std::uint64_t index) {
  const auto bits = Philox4x32({static_cast<std::uint32_t>(index),
                                static_cast<std::uint32_t>(index >> 32), 0, 0},
                               {static_cast<std::uint32_t>(seed),
                                static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t wide =
      (static_cast<std::uint64_t>(bits[1]) << 32) | bits[0];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SAMPLING_PHILOX_H_
