#include "tests/gpu/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/float16.h"

namespace holdfast::gpu_check {

using kernels::WeightType;

std::uint32_t Random::Bits() {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::uint32_t>(state_ >> 33);
}

float Random::Uniform() {
  // Eight bits after the leading one at most.
  return static_cast<float>(static_cast<int>(Bits() >> 10 & 255u) - 128) /
         128.0f;
}

std::vector<float> Random::Floats(std::size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) value = Uniform() * scale;
  return values;
}

OwnedTensor RandomTensor(Random& random, WeightType type, int rows, int cols) {
  OwnedTensor owned;
  owned.bytes.resize(kernels::WeightRowBytes(type, cols) * rows);
  const std::size_t number = kernels::WeightRowBytes(type, 1);  // 0: quantised
  for (std::size_t i = 0; i < owned.bytes.size(); ++i) {
    std::uint32_t bits = random.Bits() >> 8;
    if (type == WeightType::kF8E4M3) {
      bits &= 0xbf;  // magnitudes below 2, no NaN
    } else if (number != 0) {
      // The byte of sign and exponent: magnitudes below 2.
      if (i % number == number - 1) bits = (bits & 0x83) | 0x3c;
      // Of float the lower half: what bf16 does not hold.
      if (type == WeightType::kF32 && i % 4 < 2) bits = 0;
    } else if (i % 2 == 1) {
      bits &= 0xaf;  // scales, at even offsets, are halves below 1
    }
    owned.bytes[i] = static_cast<std::byte>(bits);
  }
  owned.tensor.name = "check.weight";
  owned.tensor.type = type;
  owned.tensor.rows = rows;
  owned.tensor.cols = cols;
  if (type == WeightType::kF8E4M3) {
    constexpr int kScaleBlock = 128;
    owned.tensor.scale_rows = kScaleBlock;
    owned.tensor.scale_cols = kScaleBlock;
    owned.tensor.scales =
        random.Floats(((rows + kScaleBlock - 1) / kScaleBlock) *
                      ((cols + kScaleBlock - 1) / kScaleBlock));
  }
  owned.tensor.data = owned.bytes.data();
  return owned;
}

float* Checker::Upload(std::span<const float> numbers) {
  auto* memory = reinterpret_cast<float*>(
      Allocate(std::max<std::size_t>(4, numbers.size_bytes())));
  if (memory != nullptr && !numbers.empty()) {
    Expect(backend_.Write(numbers.data(), numbers.size_bytes(), memory));
  }
  return memory;
}

std::byte* Checker::Allocate(std::size_t bytes) {
  auto buffer = backend_.Allocate(bytes);
  if (!buffer.ok()) {
    Expect(buffer.status());
    return nullptr;
  }
  buffers_.push_back(*std::move(buffer));
  return static_cast<std::byte*>(buffers_.back()->data());
}

void Checker::Fill(std::byte* to, std::size_t bytes, std::uint32_t pattern) {
  const std::vector<std::uint32_t> words(bytes / 4, pattern);
  Expect(backend_.Write(words.data(), bytes, to));
}

std::vector<std::byte> Checker::DownloadBytes(const void* from,
                                              std::size_t bytes) {
  std::vector<std::byte> copy(bytes);
  backend_.Read(from, bytes, copy.data());
  Expect(backend_.Synchronize());
  Digest(copy.data(), bytes);
  return copy;
}

void Checker::Digest(const void* from, std::size_t bytes) {
  for (const std::byte byte :
       std::span(static_cast<const std::byte*>(from), bytes)) {
    digest_ = (digest_ ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  }
}

std::vector<float> Checker::Download(const float* from, std::size_t count) {
  const auto bytes = DownloadBytes(from, count * sizeof(float));
  std::vector<float> numbers(count);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

void Checker::Expect(const kernels::Status& status) {
  if (!status.ok() && problem_.empty()) problem_ = status.message();
}

void Checker::Compare(const std::string& name, std::span<const float> got,
                      const kernels::reference::Numbers& want, double limit) {
  CheckResult result;
  result.name = name;
  result.limit = limit;
  result.problem = std::exchange(problem_, "");
  double difference = 0.0;
  double largest = 0.0;
  if (got.size() != want.size() && result.problem.empty()) {
    result.problem = "results of another size";
  }
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double off = std::abs(static_cast<double>(got[i]) - want[i]);
    // A NaN is as far off as can be.
    if (!(off <= difference)) difference = std::isnan(off) ? HUGE_VAL : off;
    largest = std::max(largest, std::abs(want[i]));
  }
  result.error = largest > 0.0 ? difference / largest : difference;
  results_.push_back(std::move(result));
}

void RunAllChecks(Checker& checker) {
  for (const auto check :
       {CheckRows, CheckProducts, CheckAttention, CheckPool, CheckGatedDeltaNet,
        CheckExperts, CheckContentSums, CheckSampling}) {
    check(checker);
    checker.Release();
  }
}

}  // namespace holdfast::gpu_check
