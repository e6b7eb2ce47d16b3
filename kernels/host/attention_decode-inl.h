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
#include "kernels/host/fetch.h"
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
// Vectors of keys whose scores are held in registers for each of them: a chain
// of additions waits for each, so there must be many.
inline constexpr int kKeyVectors = kVectorsTogether;
// Keys whose values are weighed for all heads before the next ones': many,
// since outputs are loaded and stored for each time, and few, since memory is
// read in its order only from one time to the next.
inline constexpr int kKeysTogether = 64;

#define HF_START(g)                        \
  [[maybe_unused]] VF a_##g = hn::Zero(d); \
  [[maybe_unused]] VF b_##g = hn::Zero(d); \
  [[maybe_unused]] VF c_##g = hn::Zero(d); \
  [[maybe_unused]] VF d_##g = hn::Zero(d);
#define HF_ACCUMULATE(g)                                \
  if constexpr (kHeads > g) {                           \
    const VF q_even = hn::Set(d, q[g * dims + dim]);    \
    const VF q_odd = hn::Set(d, q[g * dims + dim + 1]); \
    a_##g = hn::MulAdd(q_even, a_even, a_##g);          \
    b_##g = hn::MulAdd(q_even, b_even, b_##g);          \
    if constexpr (kKeyVectors > 2) {                    \
      c_##g = hn::MulAdd(q_even, c_even, c_##g);        \
      d_##g = hn::MulAdd(q_even, d_even, d_##g);        \
    }                                                   \
    a_##g = hn::MulAdd(q_odd, a_odd, a_##g);            \
    b_##g = hn::MulAdd(q_odd, b_odd, b_##g);            \
    if constexpr (kKeyVectors > 2) {                    \
      c_##g = hn::MulAdd(q_odd, c_odd, c_##g);          \
      d_##g = hn::MulAdd(q_odd, d_odd, d_##g);          \
    }                                                   \
  }
#define HF_STORE(g)                            \
  if constexpr (kHeads > g) {                  \
    float* const row = scores + g * kTileKeys; \
    hn::StoreU(a_##g, d, row + keys.key[0]);   \
    hn::StoreU(b_##g, d, row + keys.key[1]);   \
    if constexpr (kKeyVectors > 2) {           \
      hn::StoreU(c_##g, d, row + keys.key[2]); \
      hn::StoreU(d_##g, d, row + keys.key[3]); \
    }                                          \
  }

// Vectors of keys of one KV head.
struct KeyVectors {
  int key[kKeyVectors];  // each one's first
  const std::byte* numbers[kKeyVectors];
  // As many lines as the granules have that they are in are fetched meanwhile.
  LineCursor ahead;
};

// Keys whose scores are computed together, and lines that go by with each of
// their dim pairs.
HWY_INLINE int KeysAtOnce() { return kKeyVectors * LaneCount(); }
HWY_INLINE int LinesAtOnce() {
  return std::max(1, KeysAtOnce() / kGranuleTokens);
}

// kHeads query heads against kKeyVectors vectors of keys; the chain over dims
// of each key is in its own lane. scores: of the heads.
template <StateType kState, int kHeads>
void ScoreKeys(const KeyVectors& keys, const float* HWY_RESTRICT q, int dims,
               float* scores) {
  static_assert(kKeyVectors == 2 || kKeyVectors == 4);
  const DF d;
  const std::byte* const a = keys.numbers[0];
  const std::byte* const b = keys.numbers[1];
  [[maybe_unused]] const std::byte* const c = keys.numbers[kKeyVectors - 2];
  [[maybe_unused]] const std::byte* const last = keys.numbers[kKeyVectors - 1];
  LineCursor ahead = keys.ahead;
  HF_REPEAT_4(HF_START)
  for (int dim = 0; dim < dims; dim += 2) {
    VF a_even, a_odd, b_even, b_odd;
    LoadKeyPair<kState>(a, dim, a_even, a_odd);
    LoadKeyPair<kState>(b, dim, b_even, b_odd);
    [[maybe_unused]] VF c_even = a_even, c_odd = a_odd;
    [[maybe_unused]] VF d_even = b_even, d_odd = b_odd;
    if constexpr (kKeyVectors > 2) {
      LoadKeyPair<kState>(c, dim, c_even, c_odd);
      LoadKeyPair<kState>(last, dim, d_even, d_odd);
    }
    constexpr int kLines = kKeyPairBytes<kState> / kCacheLine;
    for (int i = 0; i < LinesAtOnce() * kLines; ++i)
      hwy::Prefetch(ahead.Next());
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
void WeighKeys(const std::byte* v, LineCursor ahead, std::size_t column,
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
    const std::size_t bytes = kVectors * lanes * kElementBytes;
    for (std::size_t i = 0; i < bytes; i += kCacheLine) {
      hwy::Prefetch(ahead.Next());
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

// How far ahead of its use memory is fetched (without that decode runs at half
// the speed once rows leave the cache): in its order, which is not that of its
// use within so many keys.
inline int KeysAhead() { return std::max(KeysAtOnce(), kKeysTogether); }

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
        group_(heads / tile.kv_heads),
        scores_(scores),
        partials_(partials),
        partial_floats_(kPartialHeader + shape.head_dim),
        token_bytes_(static_cast<std::size_t>(tile.kv_heads) * shape.head_dim *
                     shape.ElementBytes()),
        ahead_bytes_(KeysAhead() * token_bytes_),
        k_(KeyStripes(tile.k)),
        v_(ValueStripes()) {}

  void Run() {
    Score();
    for (int head = 0; head < heads_; ++head) {
      partials_[head * partial_floats_] =
          LargestScore(scores_ + head * kTileKeys, keys_);
    }
    // Memory would be idle meanwhile: the values behind those that the scores
    // fetched, in equal parts for the heads.
    const std::size_t all = keys_ * token_bytes_;
    const std::size_t fetched = std::min(all, ahead_bytes_);
    const std::size_t part = std::min(ahead_bytes_, all - fetched) / heads_;
    for (int head = 0; head < heads_; ++head) {
      FetchValues(fetched + head * part, part);
      float* partial = partials_ + head * partial_floats_;
      WeightsOver(partial[0], keys_, scores_ + head * kTileKeys,
                  partial + kPartialLanes);
      std::fill(partial + kPartialHeader, partial + partial_floats_, 0.0f);
    }
    Weigh();
    for (int head = 0; head < heads_; ++head) {
      Finish(partials_ + head * partial_floats_ + kPartialHeader);
    }
  }

 private:
  void FetchValues(std::size_t offset, std::size_t bytes) const {
    LineCursor lines(v_, offset);
    for (std::size_t i = 0; i < bytes; i += kCacheLine) {
      hwy::Prefetch(lines.Next());
    }
  }

  // The tile's KV heads lie together in every granule of keys, and in every
  // row of values; of all of them there are no gaps.
  Stripes KeyStripes(const std::byte* k) const {
    const std::size_t granule = kGranuleTokens * token_bytes_;
    return {KeyLanes(shape_, k, 0, tile_.first_kv_head), granule,
            kGranuleTokens * shape_.TokenBytes()};
  }
  Stripes ValueStripes() const {
    // Whole lines, about, where a row's numbers are not.
    const std::size_t piece =
        std::max(kCacheLine, token_bytes_ / kCacheLine * kCacheLine);
    const std::size_t first = VIndex(shape_, 0, tile_.first_kv_head, 0);
    if (tile_.kv_heads == shape_.kv_heads) {
      return {tile_.v, LayerBytes(shape_), LayerBytes(shape_)};
    }
    return {tile_.v + first * shape_.ElementBytes(), piece,
            shape_.TokenBytes()};
  }

  void Score() {
    const int lanes = LaneCount();
    const int width = KeysAtOnce();
    KeyVectors keys;
    // Of one head.
    const std::size_t part = width * shape_.head_dim * shape_.ElementBytes();
    const std::size_t all = (keys_ + width - 1) / width * tile_.kv_heads * part;
    std::size_t to = ahead_bytes_;
    for (int first = 0; first < keys_; first += width) {
      for (int kv_head = 0; kv_head < tile_.kv_heads; ++kv_head, to += part) {
        for (int i = 0; i < kKeyVectors; ++i) {
          // Where there are no more, the last once more, to the same bits.
          keys.key[i] =
              std::min(first + i * lanes, (keys_ - 1) / lanes * lanes);
          keys.numbers[i] = KeyLanes(shape_, tile_.k, keys.key[i],
                                     tile_.first_kv_head + kv_head);
        }
        // Behind the last keys the values are fetched.
        keys.ahead = to < all ? LineCursor(k_, to) : LineCursor(v_, to - all);
        for (int g = 0; g < group_; g += kHeadsTogether) {
          ScoreHeads<kHeadsTogether>(keys, kv_head * group_ + g,
                                     std::min(kHeadsTogether, group_ - g));
        }
      }
    }
  }

  template <int kHeads>
  void ScoreHeads(const KeyVectors& keys, int head, int heads) {
    if (heads == kHeads) {
      ScoreKeys<kState, kHeads>(
          keys, q_ + static_cast<std::ptrdiff_t>(head) * shape_.head_dim,
          shape_.head_dim, scores_ + head * kTileKeys);
    } else if constexpr (kHeads > 1) {
      ScoreHeads<kHeads - 1>(keys, head, heads);
    }
  }

  // What to fetch while the values from key `begin` on are in use.
  LineCursor Ahead(int begin, std::size_t offset) const {
    const int to = begin + KeysAhead();
    if (to < keys_) return {v_, to * token_bytes_ + offset};
    // Behind the last values the next keys are fetched.
    if (tile_.next == nullptr) return {v_, offset};
    return {KeyStripes(tile_.next), (to - keys_) * token_bytes_ + offset};
  }

  void Weigh() {
    for (int begin = 0; begin < keys_; begin += kKeysTogether) {
      const int end = std::min(begin + kKeysTogether, keys_);
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
    // In the order of memory, which the processor then sees and follows.
    const std::size_t offset = VIndex(shape_, 0, head / group_, dim) *
                               (end - begin) * shape_.ElementBytes();
    WeighKeys<kState, kHeads, kVectors>(
        tile_.v, Ahead(begin, offset),
        VIndex(shape_, 0, tile_.first_kv_head + head / group_, dim),
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
  const std::size_t token_bytes_;  // of the tile's KV heads
  const std::size_t ahead_bytes_;
  const Stripes k_;
  const Stripes v_;
};

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
