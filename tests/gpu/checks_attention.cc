#include <algorithm>
#include <cstring>

#include "kernels/cuda/kv_pool.h"
#include "kernels/float16.h"
#include "kernels/reference/reference.h"
#include "shared/cache_layout.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::KvShape;
using kernels::RowSpan;
using kernels::StateType;
using kernels::reference::FromFloats;
using kernels::reference::Numbers;

// NaN as bf16 and as float: what lies in rows that nobody wrote.
constexpr std::uint32_t kNan = 0x7fc07fc0;

// A sequence with its rows on the host and its blocks on the device.
struct Sequence {
  std::vector<float> k, v;  // [row][kv heads x head_dim]
  std::vector<std::byte*> blocks;
};

struct Case {
  const char* name;
  int heads, kv_heads, head_dim;
  StateType state;
  // Rows that are in the pool before the launch, and rows of the launch.
  std::vector<std::pair<int, int>> sequences;
};

class AttentionCase {
 public:
  AttentionCase(Checker& checker, const Case& shape)
      : checker_(checker), case_(shape), random_(shape.head_dim) {
    shape_ = {2, shape.kv_heads, shape.head_dim, shape.state};
    width_ = shape.kv_heads * shape.head_dim;
  }

  void Run() {
    MakeSequences();
    std::vector<RowSpan> before;
    std::vector<RowSpan> launch;
    int first = 0;
    int rows = 0;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const auto [old_rows, new_rows] = case_.sequences[s];
      if (old_rows > 0) {
        before.push_back({sequences_[s].blocks.data(), first, 0, old_rows});
      }
      launch.push_back({sequences_[s].blocks.data(), rows, old_rows, new_rows});
      first += old_rows;
      rows += new_rows;
    }
    Store(before, /*old=*/true);
    Store(launch, /*old=*/false);
    const int q_width = case_.heads * case_.head_dim;
    const int stride = q_width + 16;
    const auto q = random_.Floats(std::size_t(rows) * stride, 2.0f);
    float* const out =
        checker_.Upload(std::vector<float>(std::size_t(rows) * q_width));
    const float scale = 0.25f;
    checker_.backend().Attention(shape_, kLayer, checker_.Upload(q), stride,
                                 case_.heads, scale, launch, out);
    Numbers want;
    for (std::size_t s = 0; s < launch.size(); ++s) {
      Twin(sequences_[s], launch[s], &q[launch[s].first_row * stride], stride,
           scale, want);
    }
    checker_.Compare(
        case_.name, checker_.Download(out, want.size()), want,
        case_.state == StateType::kBF16 ? kBf16Limit : kFloatLimit);
  }

 private:
  static constexpr int kLayer = 1;

  void MakeSequences() {
    const std::size_t block_bytes =
        2 * shape_.layers * shape_.TokenBytes() * kBlockTokens;
    for (const auto& [old_rows, new_rows] : case_.sequences) {
      const int rows = old_rows + new_rows;
      Sequence sequence;
      sequence.k = random_.Floats(std::size_t(rows) * width_);
      sequence.v = random_.Floats(std::size_t(rows) * width_);
      for (int at = 0; at < rows; at += kBlockTokens) {
        sequence.blocks.push_back(checker_.Allocate(block_bytes));
        checker_.Fill(sequence.blocks.back(), block_bytes, kNan);
      }
      // Blocks lie anywhere.
      std::reverse(sequence.blocks.begin(), sequence.blocks.end());
      sequences_.push_back(std::move(sequence));
    }
  }

  void Store(const std::vector<RowSpan>& spans, bool old) {
    std::vector<float> k, v;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const auto [old_rows, new_rows] = case_.sequences[s];
      const std::size_t from = old ? 0 : std::size_t(old_rows) * width_;
      const std::size_t count = std::size_t(old ? old_rows : new_rows) * width_;
      const auto take = [&](const std::vector<float>& all, auto& to) {
        to.insert(to.end(), all.begin() + from, all.begin() + from + count);
      };
      take(sequences_[s].k, k);
      take(sequences_[s].v, v);
    }
    if (spans.empty()) return;
    checker_.backend().StoreKv(shape_, kLayer, checker_.Upload(k),
                               checker_.Upload(v), width_, spans);
  }

  void Twin(const Sequence& sequence, const RowSpan& span, const float* q,
            int stride, double scale, Numbers& want) const {
    const kernels::reference::AttentionShape shape = {
        case_.heads, case_.kv_heads, case_.head_dim};
    const Numbers k = FromFloats(sequence.k);
    const Numbers v = FromFloats(sequence.v);
    for (int r = 0; r < span.rows; ++r) {
      const Numbers row(q + r * stride,
                        q + r * stride + case_.heads * case_.head_dim);
      const Numbers out = kernels::reference::Attention(
          shape, row.data(), k, v, span.position + r + 1, scale);
      want.insert(want.end(), out.begin(), out.end());
    }
  }

  Checker& checker_;
  Case case_;
  Random random_;
  KvShape shape_;
  int width_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace

void CheckAttention(Checker& checker) {
  kernels::Limits limits;
  limits.max_rows = 1024;
  limits.max_cols = 512;
  limits.max_heads = 12;
  limits.max_head_dim = 256;
  limits.max_positions = 1024;
  checker.Expect(checker.backend().Prepare(limits));
  const auto bf16 = StateType::kBF16;
  // Groups that divide nothing, rows that end in the middle of a granule,
  // sequences of prefill and of decode in one launch.
  for (const Case& shape : {
           Case{"attention 64 prefill", 6, 2, 64, bf16, {{0, 290}}},
           Case{"attention 64 decode",
                6,
                2,
                64,
                bf16,
                {{600, 1}, {0, 1}, {255, 2}}},
           Case{"attention 64 mixed",
                5,
                1,
                64,
                bf16,
                {{250, 21}, {300, 1}, {3, 40}}},
           Case{"attention 128 prefill", 4, 2, 128, bf16, {{241, 37}}},
           Case{"attention 128 decode", 12, 1, 128, bf16, {{290, 4}, {15, 3}}},
           Case{"attention 256 prefill", 2, 1, 256, bf16, {{9, 70}}},
           Case{"attention 256 decode", 6, 1, 256, bf16, {{270, 3}}},
           Case{"attention f32", 4, 2, 64, StateType::kF32, {{250, 9}, {0, 1}}},
           Case{"attention f32 128", 3, 1, 128, StateType::kF32, {{29, 37}}},
           Case{"attention f32 256", 2, 2, 256, StateType::kF32, {{0, 34}}},
       }) {
    AttentionCase(checker, shape).Run();
    checker.Release();
  }
}

// Every number where kv_pool.h says, copied and zeroed by rows.
void CheckPool(Checker& checker) {
  kernels::Limits limits;
  limits.max_rows = 64;
  limits.max_positions = kBlockTokens;
  checker.Expect(checker.backend().Prepare(limits));
  constexpr int kRows = 50;
  constexpr int kKept = 35;  // in the middle of a granule
  Random random(7);
  for (const StateType state : {StateType::kBF16, StateType::kF32}) {
    const KvShape shape = {2, 2, 64, state};
    const int width = shape.kv_heads * shape.head_dim;
    const std::size_t bytes =
        2 * shape.layers * shape.TokenBytes() * kBlockTokens;
    std::byte* const block = checker.Allocate(bytes);
    std::byte* const copy = checker.Allocate(bytes);
    checker.Fill(block, bytes, kNan);
    checker.Fill(copy, bytes, kNan);
    std::vector<float> rows[2][2];  // [K, V][layer]
    std::byte* const blocks[] = {block};
    const RowSpan span = {blocks, 0, 0, kRows};
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (auto& view : rows) view[layer] = random.Floats(kRows * width);
      checker.backend().StoreKv(shape, layer, checker.Upload(rows[0][layer]),
                                checker.Upload(rows[1][layer]), width,
                                {&span, 1});
    }
    checker.backend().CopyBlockRows(shape, block, kKept, copy);
    checker.backend().ZeroBlockRows(shape, copy, kKept);
    const auto got = checker.DownloadBytes(copy, bytes);
    std::vector<float> numbers;
    Numbers want;
    for (int view = 0; view < 2; ++view) {
      for (int layer = 0; layer < shape.layers; ++layer) {
        const auto pool = kernels::cuda::PoolShapeOf(shape, layer);
        for (int token = 0; token < kBlockTokens; ++token) {
          for (int i = 0; i < width; ++i) {
            const int dim = i % shape.head_dim;
            const int lane = token % kGranuleTokens;
            const std::size_t index =
                std::size_t(i / shape.head_dim) *
                    kernels::cuda::HeadGranule(shape.head_dim) +
                (view == 0 ? kernels::cuda::KIndex(lane, dim)
                           : kernels::cuda::VIndex(lane, dim));
            const std::byte* at =
                &got[(view == 0 ? pool.k_offset : pool.v_offset) +
                     token / kGranuleTokens * pool.granule_bytes +
                     index * pool.element_bytes];
            if (state == StateType::kBF16) {
              std::uint16_t bits;
              std::memcpy(&bits, at, 2);
              numbers.push_back(kernels::Bf16ToFloat(bits));
            } else {
              float value;
              std::memcpy(&value, at, 4);
              numbers.push_back(value);
            }
            want.push_back(token < kKept ? rows[view][layer][token * width + i]
                                         : 0.0f);
          }
        }
      }
    }
    checker.Compare(
        state == StateType::kBF16 ? "pool rows bf16" : "pool rows f32", numbers,
        want, 0.0);
  }
}

}  // namespace holdfast::gpu_check
