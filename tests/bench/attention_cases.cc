#include <cmath>
#include <optional>
#include <utility>

#include "kernels/host/memory.h"
#include "kernels/host/testing.h"
#include "shared/cache_layout.h"
#include "tests/bench/blas.h"
#include "tests/bench/cases.h"
#include "tests/bench/plain_read.h"

namespace holdfast::bench {
namespace {

using kernels::KvShape;
using kernels::RowSpan;
using kernels::StateType;
using kernels::testing::Random;

constexpr double kGiga = 1e-9;
constexpr int kDepth = 4096;
constexpr int kPrefillRows = 1024;

struct AttentionShape {
  const char* name;
  int layers;
  int heads;
  int kv_heads;
  int head_dim;

  KvShape kv() const { return {layers, kv_heads, head_dim, StateType::kBF16}; }
  int width() const { return heads * head_dim; }
  int joined() const { return width() + 2 * kv_heads * head_dim; }
  float scale() const { return 1.0f / std::sqrt(float(head_dim)); }
};
constexpr AttentionShape kDemo = {"demo model, 30 layers", kLayers, kHeads,
                                  kKvHeads, kHeadDim};
constexpr AttentionShape kLarger = {"32 heads of 128, 8 KV, 4 layers", 4, 32, 8,
                                    128};

// Blocks in memory like the engine's, which asks for huge pages.
class Pool {
 public:
  Pool(const KvShape& shape, int tokens) {
    const std::size_t block_bytes =
        2 * shape.layers * shape.TokenBytes() * kBlockTokens;
    const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    memory_ =
        OrDie(kernels::HostMemory::Make(block_bytes * blocks, "pool"), "pool");
    for (int i = 0; i < blocks; ++i) {
      table_.push_back(memory_.data() + block_bytes * i);
    }
  }
  std::byte* const* blocks() const { return table_.data(); }

 private:
  kernels::HostMemory memory_;
  std::vector<std::byte*> table_;
};

// A pool whose first `keys` rows of every layer are written. Rows of q, k and v
// side by side, as a model has them.
class Rows {
 public:
  Rows(Machine& machine, const AttentionShape& shape, int keys)
      : pool(shape.kv(), keys) {
    Random random(3);
    joined = random.Floats(std::size_t(keys) * shape.joined());
    // As they are in the pool, so that others start from the same numbers.
    for (float& value : joined) value = std::round(value * 128) / 128;
    const RowSpan span = {pool.blocks(), 0, 0, keys};
    for (int layer = 0; layer < shape.layers; ++layer) {
      machine.backend(kThreads).StoreKv(
          shape.kv(), layer, joined.data() + shape.width(),
          joined.data() + shape.width() + shape.kv_heads * shape.head_dim,
          shape.joined(), {&span, 1});
    }
  }

  Pool pool;
  std::vector<float> joined;
};

class Decode final : public Case {
 public:
  Decode(Machine& machine, const AttentionShape& shape, int keys)
      : machine_(machine),
        shape_(shape),
        keys_(keys),
        rows_(machine, shape, keys),
        read_(shape.layers * 2 * shape.kv().TokenBytes() * keys),
        out_(shape.width()) {}

  void Kernel(int threads) override {
    const RowSpan span = {rows_.pool.blocks(), 0, keys_ - 1, 1};
    for (int layer = 0; layer < shape_.layers; ++layer) {
      machine_.backend(threads).Attention(
          shape_.kv(), layer, rows_.joined.data(), shape_.joined(),
          shape_.heads, shape_.scale(), {&span, 1}, out_.data());
    }
  }
  void Floor(int threads) override { read_.Run(machine_.pool(threads)); }

 private:
  Machine& machine_;
  const AttentionShape shape_;
  const int keys_;
  Rows rows_;
  PlainRead read_;
  std::vector<float> out_;
};

// The last rows of a prompt, one layer.
class Prefill final : public Case {
 public:
  Prefill(Machine& machine, const AttentionShape& shape,
          const std::string& name)
      : machine_(machine),
        shape_(shape),
        rows_(machine, shape, kDepth),
        out_(std::size_t(kPrefillRows) * shape.width()) {
    if (!HaveBlas()) return;
    MakeFlash();
    Kernel(kThreads);
    Floor(kThreads);
    CheckSame(ByKvHead(out_, shape.width()), flash_->out(), name);
  }

  void Kernel(int threads) override {
    constexpr int kFirst = kDepth - kPrefillRows;
    const RowSpan span = {rows_.pool.blocks(), 0, kFirst, kPrefillRows};
    machine_.backend(threads).Attention(
        shape_.kv(), 0, rows_.joined.data() + kFirst * shape_.joined(),
        shape_.joined(), shape_.heads, shape_.scale(), {&span, 1}, out_.data());
  }
  void Floor(int threads) override { flash_->Run(machine_.pool(threads)); }

 private:
  // Query rows of `stride`, those of each KV head together.
  std::vector<float> ByKvHead(const std::vector<float>& rows,
                              int stride) const {
    const int dims = shape_.width() / shape_.kv_heads;  // of a group
    const std::size_t first = rows.size() / stride - kPrefillRows;
    std::vector<float> result;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int r = 0; r < kPrefillRows; ++r) {
        const float* from = &rows[(first + r) * stride + head * dims];
        result.insert(result.end(), from, from + dims);
      }
    }
    return result;
  }

  std::vector<float> KeysByHead(int column) const {
    const int dims = shape_.head_dim;
    std::vector<float> result;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int key = 0; key < kDepth; ++key) {
        const float* from = &rows_.joined[std::size_t(key) * shape_.joined() +
                                          column + head * dims];
        result.insert(result.end(), from, from + dims);
      }
    }
    return result;
  }

  void MakeFlash() {
    const FlashShape flash = {.kv_heads = shape_.kv_heads,
                              .group = shape_.heads / shape_.kv_heads,
                              .head_dim = shape_.head_dim,
                              .position = kDepth - kPrefillRows,
                              .tokens = kPrefillRows,
                              .scale = shape_.scale()};
    const int kv_width = shape_.kv_heads * shape_.head_dim;
    flash_.emplace(flash, kThreads, ByKvHead(rows_.joined, shape_.joined()),
                   KeysByHead(shape_.width()),
                   KeysByHead(shape_.width() + kv_width));
  }

  Machine& machine_;
  const AttentionShape shape_;
  Rows rows_;
  std::vector<float> out_;
  std::optional<BlasFlash> flash_;
};

CaseSpec DecodeSpec(Machine& machine, const AttentionShape& shape, int keys) {
  CaseSpec spec;
  spec.name =
      "attention/decode " + std::to_string(keys) + " keys/" + shape.name;
  spec.floor = "plain read";
  spec.work = kGiga * shape.layers * 2 *
              static_cast<double>(shape.kv().TokenBytes()) * keys;
  spec.unit = "GB";
  spec.make = [&machine, shape, keys] {
    return std::make_unique<Decode>(machine, shape, keys);
  };
  return spec;
}

CaseSpec PrefillSpec(Machine& machine, AttentionShape shape) {
  shape.layers = 1;
  CaseSpec spec;
  spec.name = "attention/prefill 1024 rows to " + std::to_string(kDepth) + "/" +
              std::to_string(shape.heads) + " heads of " +
              std::to_string(shape.head_dim);
  spec.floor = HaveBlas() ? "sgemm flash" : "";
  const double keys = kDepth - kPrefillRows / 2.0 + 0.5;  // of a row, the mean
  spec.work = kGiga * 4 * shape.width() * kPrefillRows * keys;
  spec.unit = "GFLOP";
  spec.make = [&machine, shape, name = spec.name] {
    return std::make_unique<Prefill>(machine, shape, name);
  };
  return spec;
}

}  // namespace

std::vector<CaseSpec> AttentionCases(Machine& machine) {
  return {
      DecodeSpec(machine, kDemo, 2048),   DecodeSpec(machine, kDemo, 8192),
      DecodeSpec(machine, kLarger, 2048), DecodeSpec(machine, kLarger, 8192),
      PrefillSpec(machine, kDemo),        PrefillSpec(machine, kLarger)};
}

}  // namespace holdfast::bench
