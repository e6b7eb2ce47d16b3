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

// A half of magnitude 2^-14 to 2^-10: scale of a scale.
std::uint32_t SmallHalf(Random& random) {
  return (random.Bits() & 0x83ff) |
         static_cast<std::uint32_t>(1 + random.Below(4)) << 10;
}

void AppendBytes(Random& random, int count, std::vector<std::byte>& bytes) {
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(random.Bits()));
  }
}

void AppendBlockOfK(Random& random, WeightType type,
                    std::vector<std::byte>& bytes) {
  const int rest = static_cast<int>(WeightRowBytes(type, 256));
  if (type == WeightType::kQ6_K) {
    AppendBytes(random, rest - 2, bytes);
    Append16(bytes, SmallHalf(random));
    return;
  }
  Append16(bytes, SmallHalf(random));
  Append16(bytes, SmallHalf(random));
  AppendBytes(random, rest - 4, bytes);
}

// Bytes without a NaN, and their scales.
void FillF8(Random& random, float scale, OwnedTensor& owned) {
  constexpr int kBlock = 128;
  WeightTensor& tensor = owned.tensor;
  const std::size_t count = tensor.rows * tensor.cols;
  while (owned.bytes.size() < count) {
    const std::uint32_t bits = random.Bits() & 0xff;
    if ((bits & 0x7f) == 0x7f) continue;
    owned.bytes.push_back(static_cast<std::byte>(bits));
  }
  tensor.scale_rows = tensor.scale_cols = kBlock;
  tensor.scales = random.Floats(((tensor.rows + kBlock - 1) / kBlock) *
                                    ((tensor.cols + kBlock - 1) / kBlock),
                                scale);
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

int WholeBlocks(WeightType type, int cols) {
  const int block = WeightBlock(type);
  return (cols + block - 1) / block * block;
}

OwnedTensor RandomTensor(Random& random, WeightType type, int rows, int cols) {
  if (type == WeightType::kF32) {
    return FloatTensor(random.Floats(std::size_t(rows) * cols), rows, cols);
  }
  OwnedTensor owned;
  if (type == WeightType::kF8E4M3) {
    owned.tensor = {"test.weight", type, rows, cols, nullptr};
    FillF8(random, 0x1p-8f, owned);
    owned.tensor.data = owned.bytes.data();
    return owned;
  }
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
      case WeightType::kQ4_K:
      case WeightType::kQ5_K:
      case WeightType::kQ6_K:
        AppendBlockOfK(random, type, owned.bytes);
        continue;
      case WeightType::kQ4_1:
      case WeightType::kQ5_1:
        Append16(owned.bytes, RandomHalf(random));
        break;
      default:
        break;
    }
    Append16(owned.bytes, RandomHalf(random));
    const int halves =
        type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ? 4 : 2;
    AppendBytes(random, static_cast<int>(WeightRowBytes(type, 32)) - halves,
                owned.bytes);
  }
  owned.tensor = {"test.weight", type, rows, cols, owned.bytes.data(), {}};
  return owned;
}

OwnedTensor ExtremeTensor(Random& random, WeightType type, int rows, int cols) {
  constexpr std::uint16_t kHalves[] = {0x7bff, 0xfbff, 0x0001, 0x8001,
                                       0x0000, 0x8000, 0x03ff, 0x3c00};
  OwnedTensor owned = RandomTensor(random, type, rows, cols);
  if (type == WeightType::kF8E4M3) {
    constexpr float kScales[] = {0x1.fp118f,       -0x1.23p100f, 0x1p-149f,
                                 0x1.234566p-126f, 0.0f,         -0x1p-130f};
    for (float& scale : owned.tensor.scales) scale = kScales[random.Below(6)];
    return owned;
  }
  // A half where a block starts, then where Q4_1 and others have a minimum, or
  // where Q6_K has its scale.
  const std::size_t block = WeightRowBytes(type, WeightBlock(type));
  if (WeightBlock(type) == 1) return owned;
  const bool minimum = type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ||
                       type == WeightType::kQ4_K || type == WeightType::kQ5_K;
  const std::size_t first = type == WeightType::kQ6_K ? block - 2 : 0;
  for (std::size_t at = first; at < owned.bytes.size(); at += block) {
    for (int i = 0; i <= (minimum ? 1 : 0); ++i) {
      std::memcpy(&owned.bytes[at + 2 * i], &kHalves[random.Below(8)], 2);
    }
    // Now and then integers of all zeros or all ones.
    const int fill = random.Below(4);
    if (fill > 1 || type == WeightType::kQ6_K) continue;
    std::memset(&owned.bytes[at + 4], fill * 255, block - 4);
  }
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
