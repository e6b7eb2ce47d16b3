// What the kernel tests share: portable pseudo-random inputs, weights of every
// type, pools of blocks, and one backend for each instruction set.
#ifndef HOLDFAST_KERNELS_HOST_TESTING_H_
#define HOLDFAST_KERNELS_HOST_TESTING_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace holdfast::kernels::testing {

// The same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t Bits();
  int Below(int bound) { return static_cast<int>(Bits() % bound); }
  float Uniform();  // in [-1, 1)
  std::vector<float> Floats(std::size_t count, float scale = 1.0f);

 private:
  std::uint64_t state_;
};

inline constexpr std::array kAllWeightTypes = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
    WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
    WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
    WeightType::kQ5_K, WeightType::kQ6_K, WeightType::kF8E4M3};

// The least multiple of the type's block that is not below `cols`.
int WholeBlocks(WeightType type, int cols);

// A tensor with its bytes.
struct OwnedTensor {
  std::vector<std::byte> bytes;
  WeightTensor tensor;
};
// Numbers of about 1 at most. F8_E4M3 with scales of 128 x 128 numbers.
OwnedTensor RandomTensor(Random& random, WeightType type, int rows, int cols);
// Every bit random, but finite: of scales from subnormal to the largest.
OwnedTensor ExtremeTensor(Random& random, WeightType type, int rows, int cols);
OwnedTensor FloatTensor(std::span<const float> values, int rows, int cols);

// A block table over memory that starts as `fill`ed 32-bit patterns.
class TestPool {
 public:
  TestPool(const KvShape& shape, int tokens, std::uint32_t fill);
  std::byte* const* blocks() const { return table_.data(); }
  std::byte* block(int index) const { return table_[index]; }
  std::size_t block_bytes() const { return block_bytes_; }
  int block_count() const { return static_cast<int>(table_.size()); }

 private:
  std::size_t block_bytes_;
  std::vector<std::uint32_t> memory_;
  std::vector<std::byte*> table_;
};
inline constexpr std::uint32_t kQuietNan = 0x7fc07fc0;  // NaN as bf16 too
inline constexpr std::uint32_t kInfinity = 0x7f807f80;

// Limits that every test here fits.
Limits TestLimits();

// A prepared backend of the best target.
std::unique_ptr<Backend> MakeBackend(int threads);

// Calls body with the machine's instruction sets masked to each one in turn
// that the kernels were built for; backends made inside use it.
void ForEachTarget(const std::function<void(const std::string& name)>& body);

std::uint64_t Digest(std::uint64_t seed, const void* data, std::size_t bytes);

}  // namespace holdfast::kernels::testing

#endif  // HOLDFAST_KERNELS_HOST_TESTING_H_
