#include "kernels/host/testing.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/host/highway_targets.h"
#include "kernels/host/host_backend.h"
// After the choice of targets:
#include "hwy/highway.h"
#include "shared/cache_layout.h"

namespace holdfast::kernels::testing {
namespace {

void Append16(std::vector<std::byte>& bytes, std::uint32_t bits) {
  bytes.push_back(static_cast<std::byte>(bits));
  bytes.push_back(static_cast<std::byte>(bits >> 8));
}

// A half of magnitude 2^-10 to 2^-4; one in 64 is subnormal.
std::uint32_t RandomHalf(Random& random) {
  const std::uint32_t mantissa = random.Bits() & 0x3ff;
  const std::uint32_t sign = (random.Bits() & 1) << 15;
  if (random.Below(64) == 0) return sign | mantissa;
  return sign | static_cast<std::uint32_t>(5 + random.Below(7)) << 10 |
         mantissa;
}

}  // namespace

std::uint32_t Random::Bits() {
  state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<std::uint32_t>(state_ >> 33);
}

float Random::Uniform() {
  return static_cast<float>(Bits() >> 7) * 0x1p-23f - 1.0f;
}

std::vector<float> Random::Floats(std::size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) value = Uniform() * scale;
  return values;
}

OwnedTensor FloatTensor(std::span<const float> values, int rows, int cols) {
  OwnedTensor owned;
  const auto bytes = std::as_bytes(values);
  owned.bytes.assign(bytes.begin(), bytes.end());
  owned.tensor = {"test.weight", WeightType::kF32,   rows,
                  cols,          owned.bytes.data(), {}};
  return owned;
}

OwnedTensor RandomTensor(Random& random, WeightType type, int rows, int cols) {
  if (type == WeightType::kF32) {
    return FloatTensor(random.Floats(std::size_t(rows) * cols), rows, cols);
  }
  OwnedTensor owned;
  const std::size_t bytes = WeightRowBytes(type, cols) * rows;
  while (owned.bytes.size() < bytes) {
    switch (type) {
      case WeightType::kF16:
        Append16(owned.bytes, RandomHalf(random));
        continue;
      case WeightType::kBF16:  // magnitudes 2^-8 to 1
        Append16(owned.bytes, (random.Bits() & 0x807f) |
                                  std::uint32_t(119 + random.Below(8)) << 7);
        continue;
      case WeightType::kQ4_1:
        Append16(owned.bytes, RandomHalf(random));
        break;
      default:
        break;
    }
    Append16(owned.bytes, RandomHalf(random));
    const int values = type == WeightType::kQ8_0 ? 32 : 16;
    for (int i = 0; i < values; ++i) {
      owned.bytes.push_back(static_cast<std::byte>(random.Bits()));
    }
  }
  owned.tensor = {"test.weight", type, rows, cols, owned.bytes.data(), {}};
  return owned;
}

TestPool::TestPool(const KvShape& shape, int tokens, std::uint32_t fill)
    : block_bytes_(2 * shape.layers * kBlockTokens * shape.TokenBytes()) {
  const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  memory_.assign(block_bytes_ / 4 * blocks, fill);
  for (int b = 0; b < blocks; ++b) {
    table_.push_back(reinterpret_cast<std::byte*>(memory_.data()) +
                     b * block_bytes_);
  }
}

Limits TestLimits() {
  Limits limits;
  limits.max_rows = 1024;
  limits.max_cols = 1024;
  limits.max_vocab = 1024;
  limits.max_heads = 24;
  limits.max_head_dim = 256;
  limits.max_positions = 2048;
  return limits;
}

std::unique_ptr<Backend> MakeBackend(int threads) {
  HostOptions options;
  options.threads = threads;
  auto backend = MakeHostBackend(options);
  const Status status =
      backend.ok() ? backend.value()->Prepare(TestLimits()) : backend.status();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::abort();
  }
  return std::move(backend).value();
}

void ForEachTarget(const std::function<void(const std::string& name)>& body) {
  const std::int64_t all =
      hwy::SupportedTargets() & HWY_TARGETS & ~(HWY_EMU128 | HWY_SCALAR);
  for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

// FNV-1a.
std::uint64_t Digest(std::uint64_t seed, const void* data, std::size_t bytes) {
  std::uint64_t hash = seed ^ 1469598103934665603ull;
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ p[i]) * 1099511628211ull;
  }
  return hash;
}

}  // namespace holdfast::kernels::testing
