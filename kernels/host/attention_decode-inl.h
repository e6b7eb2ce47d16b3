// Attention of one row over one tile of keys, read from the pool as it lies
// there: every KV head in one sweep, so that memory is read in its order;
// included once per target.
#if defined(HOLDFAST_KERNELS_HOST_ATTENTION_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_ATTENTION_DECODE_INL_H_
#undef HOLDFAST_KERNELS_HOST_ATTENTION_DECODE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/repeat.h"
#include "kernels/host/softmax-inl.h"
#include "kernels/host/state-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "shared/cache_layout.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Query heads that share the loads of their KV head's numbers.
inline constexpr int kHeadsTogether = 4;
// Vectors of an output held in registers for each of them.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kVectorsTogether = 2;
#else
inline constexpr int kVectorsTogether = 4;
#endif
// How far ahead rows are fetched: without it decode runs at half the speed
// once rows leave the cache.
inline constexpr int kFetchTokens = 32;
inline constexpr std::size_t kLine = 64;  // bytes that one fetch brings
// Keys whose V rows stay in the first-level cache over all heads and columns.
inline constexpr int kKeysTogether = kFetchTokens;

#define HF_START(g)         \
  VF a_##g = hn::Zero(d);   \
  VF b_##g = hn::Zero(d);   \
  static_cast<void>(a_##g); \
  static_cast<void>(b_##g);
#define HF_ACCUMULATE(g)                                \
  if constexpr (kHeads > g) {                           \
    const VF q_even = hn::Set(d, q[g * dims + dim]);    \
    const VF q_odd = hn::Set(d, q[g * dims + dim + 1]); \
    a_##g = hn::MulAdd(q_even, a_even, a_##g);          \
    b_##g = hn::MulAdd(q_even, b_even, b_##g);          \
    a_##g = hn::MulAdd(q_odd, a_odd, a_##g);            \
    b_##g = hn::MulAdd(q_odd, b_odd, b_##g);            \
  }
#define HF_STORE(g)                                 \
  if constexpr (kHeads > g) {                       \
    hn::StoreU(a_##g, d, scores_a + g * kTileKeys); \
    hn::StoreU(b_##g, d, scores_b + g * kTileKeys); \
  }

// kHeads query heads against two vectors of keys; the chain over dims of each
// key is in its own lane. ahead_*: what to fetch meanwhile, as many bytes.
template <StateType kState, int kHeads>
void ScoreKeys(const std::byte* keys_a, const std::byte* keys_b,
               const std::byte* ahead_a, const std::byte* ahead_b,
               const float* HWY_RESTRICT q, int dims, float* scores_a,
               float* scores_b) {
  const DF d;
  HF_REPEAT_4(HF_START)
  for (int dim = 0; dim < dims; dim += 2) {
    VF a_even, a_odd, b_even, b_odd;
    LoadKeyPair<kState>(keys_a, dim, a_even, a_odd);
    LoadKeyPair<kState>(keys_b, dim, b_even, b_odd);
    const std::size_t at = dim / 2 * kKeyPairBytes<kState>;
    hwy::Prefetch(ahead_a + at);
    hwy::Prefetch(ahead_b + at);
    HF_REPEAT_4(HF_ACCUMULATE)
  }
  HF_REPEAT_4(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

// Output vectors 0 to 3 of head g.
#define HF_START(g)                                            \
  VF o0_##g = hn::Zero(d);                                     \
  VF o1_##g = hn::Zero(d);                                     \
  VF o2_##g = hn::Zero(d);                                     \
  VF o3_##g = hn::Zero(d);                                     \
  if constexpr (kHeads > g) {                                  \
    o0_##g = hn::LoadU(d, out + g * out_stride);               \
    if constexpr (kVectors > 1)                                \
      o1_##g = hn::LoadU(d, out + g * out_stride + lanes);     \
    if constexpr (kVectors > 2)                                \
      o2_##g = hn::LoadU(d, out + g * out_stride + 2 * lanes); \
    if constexpr (kVectors > 3)                                \
      o3_##g = hn::LoadU(d, out + g * out_stride + 3 * lanes); \
  }
#define HF_ACCUMULATE(g)                                                 \
  if constexpr (kHeads > g) {                                            \
    const VF weight = hn::Set(d, weights[g * kTileKeys + key]);          \
    o0_##g = hn::MulAdd(weight, v0, o0_##g);                             \
    if constexpr (kVectors > 1) o1_##g = hn::MulAdd(weight, v1, o1_##g); \
    if constexpr (kVectors > 2) o2_##g = hn::MulAdd(weight, v2, o2_##g); \
    if constexpr (kVectors > 3) o3_##g = hn::MulAdd(weight, v3, o3_##g); \
  }
#define HF_STORE(g)                                            \
  if constexpr (kHeads > g) {                                  \
    hn::StoreU(o0_##g, d, out + g * out_stride);               \
    if constexpr (kVectors > 1)                                \
      hn::StoreU(o1_##g, d, out + g * out_stride + lanes);     \
    if constexpr (kVectors > 2)                                \
      hn::StoreU(o2_##g, d, out + g * out_stride + 2 * lanes); \
    if constexpr (kVectors > 3)                                \
      hn::StoreU(o3_##g, d, out + g * out_stride + 3 * lanes); \
  } else {                                                     \
    static_cast<void>(o0_##g);                                 \
    static_cast<void>(o1_##g);                                 \
    static_cast<void>(o2_##g);                                 \
    static_cast<void>(o3_##g);                                 \
  }

// Adds keys [begin, end) to kVectors vectors of kHeads heads' outputs, which
// have the order of LoadStatePair unless there is one. v: the first column of
// row 0, `row` numbers a row.
template <StateType kState, int kHeads, int kVectors>
void WeighKeys(const std::byte* v, const std::byte* ahead, std::size_t column,
               std::size_t row, int begin, int end,
               const float* HWY_RESTRICT weights, float* HWY_RESTRICT out,
               std::ptrdiff_t out_stride) {
  static_assert(kVectors == 1 || kVectors == 2 || kVectors == 4);
  const DF d;
  const int lanes = LaneCount();
  constexpr std::size_t kElementBytes = kState == StateType::kBF16 ? 2 : 4;
  HF_REPEAT_4(HF_START)
  for (int key = begin; key < end; ++key) {
    const std::size_t at = key * row + column;
    for (std::size_t i = 0; i < kVectors * lanes * kElementBytes; i += kLine) {
      hwy::Prefetch(ahead + at * kElementBytes + i);
    }
    VF v0, v1, v2, v3;
    if constexpr (kVectors == 1) {
      v0 = LoadState<kState>(v, at);
      v1 = v0;
    } else {
      LoadStatePair<kState>(v, at, v0, v1);
    }
    if constexpr (kVectors == 4) {
      LoadStatePair<kState>(v, at + 2 * lanes, v2, v3);
    } else {
      v2 = v0;
      v3 = v0;
    }
    static_cast<void>(v1);
    static_cast<void>(v2);
    static_cast<void>(v3);
    HF_REPEAT_4(HF_ACCUMULATE)
  }
  HF_REPEAT_4(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

// One row over one tile.
template <StateType kState>
class DecodeTile {
 public:
  DecodeTile(const KvShape& shape, const KvTile& tile, int keys, const float* q,
             int heads, float* scores, float* partials)
      : shape_(shape),
        tile_(tile),
        keys_(keys),
        q_(q),
        heads_(heads),
        group_(heads / shape.kv_heads),
        scores_(scores),
        partials_(partials),
        partial_floats_(kPartialHeader + shape.head_dim) {}

  void Run() {
    Score();
    // Memory would be idle meanwhile: the values behind those that the scores
    // fetched, in equal parts for the heads.
    const std::size_t fetched = kFetchTokens * shape_.TokenBytes();
    const std::size_t all = keys_ * shape_.TokenBytes();
    const std::size_t part =
        std::min(fetched, all - std::min(all, fetched)) / heads_;
    for (int head = 0; head < heads_; ++head) {
      FetchFar(tile_.v + fetched + head * part, part);
      float* partial = partials_ + head * partial_floats_;
      partial[0] = SoftmaxWeights(scores_ + head * kTileKeys, keys_,
                                  partial + kPartialLanes);
      std::fill(partial + kPartialHeader, partial + partial_floats_, 0.0f);
    }
    Weigh();
    for (int head = 0; head < heads_; ++head) {
      Finish(partials_ + head * partial_floats_ + kPartialHeader);
    }
  }

 private:
  // Into the second-level cache: the first has no room for it yet.
  static void FetchFar(const std::byte* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += kLine) {
      __builtin_prefetch(data + i, 0, 2);
    }
  }

  void Score() {
    const int lanes = LaneCount();
    const std::size_t fetch = kFetchTokens * shape_.TokenBytes();
    // Behind the last keys the values are fetched.
    const int chunks = (keys_ + kFetchTokens - 1) / kFetchTokens;
    const std::byte* const end = tile_.k + chunks * fetch;
    const auto ahead = [&](const std::byte* keys) HWY_ATTR {
      const std::byte* at = keys + fetch;
      return at < end ? at : tile_.v + (at - end);
    };
    for (int key = 0; key < keys_; key += 2 * lanes) {
      // An odd last vector is computed twice, to the same bits.
      const int next = key + lanes < keys_ ? key + lanes : key;
      for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
        const std::byte* a = KeyLanes(shape_, tile_.k, key, kv_head);
        const std::byte* b = KeyLanes(shape_, tile_.k, next, kv_head);
        for (int g = 0; g < group_; g += kHeadsTogether) {
          ScoreHeads<kHeadsTogether>(
              a, b, ahead(a), ahead(b), kv_head * group_ + g,
              std::min(kHeadsTogether, group_ - g), key, next);
        }
      }
    }
  }

  template <int kHeads>
  void ScoreHeads(const std::byte* a, const std::byte* b,
                  const std::byte* ahead_a, const std::byte* ahead_b, int head,
                  int heads, int key, int next) {
    if (heads == kHeads) {
      float* scores = scores_ + head * kTileKeys;
      ScoreKeys<kState, kHeads>(
          a, b, ahead_a, ahead_b,
          q_ + static_cast<std::ptrdiff_t>(head) * shape_.head_dim,
          shape_.head_dim, scores + key, scores + next);
    } else if constexpr (kHeads > 1) {
      ScoreHeads<kHeads - 1>(a, b, ahead_a, ahead_b, head, heads, key, next);
    }
  }

  void Weigh() {
    const std::size_t block = kKeysTogether * shape_.TokenBytes();
    for (int begin = 0; begin < keys_; begin += kKeysTogether) {
      const int end = std::min(begin + kKeysTogether, keys_);
      ahead_ = tile_.v + block;  // of the next keys
      if (end == keys_) {
        ahead_ = tile_.next == nullptr
                     ? tile_.v
                     : tile_.next - begin * shape_.TokenBytes();
      }
      for (int head = 0; head < heads_;) {
        const int left = group_ - head % group_;  // of this KV head
        const int count = std::min(kHeadsTogether, left);
        WeighHeads<kHeadsTogether>(begin, end, head, count);
        head += count;
      }
    }
  }

  template <int kHeads>
  void WeighHeads(int begin, int end, int head, int heads) {
    if (heads == kHeads) {
      const int step = LaneCount();
      int dim = 0;
      for (; dim + kVectorsTogether * step <= shape_.head_dim;
           dim += kVectorsTogether * step) {
        WeighColumns<kHeads, kVectorsTogether>(begin, end, head, dim);
      }
      for (; dim < shape_.head_dim; dim += step) {
        WeighColumns<kHeads, 1>(begin, end, head, dim);
      }
    } else if constexpr (kHeads > 1) {
      WeighHeads<kHeads - 1>(begin, end, head, heads);
    }
  }

  template <int kHeads, int kVectors>
  void WeighColumns(int begin, int end, int head, int dim) {
    WeighKeys<kState, kHeads, kVectors>(
        tile_.v, ahead_, VIndex(shape_, 0, head / group_, dim),
        static_cast<std::size_t>(shape_.kv_heads) * shape_.head_dim, begin, end,
        scores_ + head * kTileKeys,
        partials_ + head * partial_floats_ + kPartialHeader + dim,
        partial_floats_);
  }

  // Makes an output canonical (no -0) and brings it into order.
  void Finish(float* output) const {
    const DF d;
    const int step = LaneCount();
    const VF zero = hn::Zero(d);
    int dim = 0;
    for (; dim + kVectorsTogether * step <= shape_.head_dim;
         dim += kVectorsTogether * step) {
      for (int i = 0; i < kVectorsTogether; i += 2) {
        float* pair = output + dim + i * step;
        const VF first = hn::Add(hn::LoadU(d, pair), zero);
        const VF second = hn::Add(hn::LoadU(d, pair + step), zero);
        StoreStatePair<kState>(first, second, pair);
      }
    }
    for (; dim < shape_.head_dim; dim += step) {
      hn::StoreU(hn::Add(hn::LoadU(d, output + dim), zero), d, output + dim);
    }
  }

  const KvShape& shape_;
  const KvTile& tile_;
  const int keys_;
  const float* q_;
  const int heads_;
  const int group_;
  float* scores_;
  float* partials_;
  const std::ptrdiff_t partial_floats_;
  const std::byte* ahead_ = nullptr;
};

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
