// Compiled without fused operations (-fmad=false): the doubles here must have
// the host's bits.
#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/sampling.h"
#include "kernels/sampling/ranked_draw.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = kSliceLanes;
static_assert(kMostCandidates <= kThreads);

// A logit and its id as one number, larger for what comes first: the logit's
// bits in an order that unsigned numbers have, then the id turned around. 0 is
// behind every logit; one that is not finite is before every other.
using Key = unsigned long long;
constexpr unsigned kNotFiniteOrder = 0xffffffffu;

__device__ __forceinline__ Key KeyOf(float logit, int id) {
  const unsigned bits = logit == 0.0f ? 0u : __float_as_uint(logit);
  unsigned order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  if ((bits & 0x7fffffffu) >= 0x7f800000u) order = kNotFiniteOrder;
  return Key{order} << 32 | ~static_cast<unsigned>(id);
}
__device__ __forceinline__ unsigned OrderOf(Key key) {
  return static_cast<unsigned>(key >> 32);
}
__device__ __forceinline__ int IdOf(Key key) {
  return static_cast<int>(~static_cast<unsigned>(key));
}
__device__ __forceinline__ float LogitOf(Key key) {
  const unsigned order = OrderOf(key);
  return __uint_as_float(order >> 31 != 0 ? order ^ 0x80000000u : ~order);
}

struct Logits {
  const float* logits;
  __device__ Key operator()(int i) const { return KeyOf(logits[i], i); }
};
struct Keys {
  const Key* keys;
  __device__ Key operator()(int i) const { return keys[i]; }
};

// The largest first; bitonic. `size` is a power of two.
__device__ void SortDescending(Key* keys, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const int low = 2 * pair - pair % step;
        const Key a = keys[low];
        const Key b = keys[low + step];
        const bool descending = (low & run) == 0;
        if ((a < b) == descending) {
          keys[low] = b;
          keys[low + step] = a;
        }
      }
    }
  }
  __syncthreads();
}

// The largest comes first; the others stay in any order.
__device__ void LargestFirst(Key* keys, int size) {
  for (int half = size / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < half; i += kThreads) {
      if (keys[i] < keys[i + half]) keys[i] = keys[i + half];
    }
  }
  __syncthreads();
}

// A block ranks kSliceIds of the source's n keys and writes its `count` best,
// zeros where it has no more.
template <typename Source>
__global__ void RankKernel(Source source, int n, int count, Key* out) {
  Key* const keys = SharedMemory<Key>();
  const int first = static_cast<int>(blockIdx.x) * kSliceIds;
  const int here = Min(kSliceIds, n - first);
  int size = 2;
  while (size < here) size *= 2;
  for (int i = threadIdx.x; i < size; i += kThreads) {
    keys[i] = i < here ? source(first + i) : 0;
  }
  if (count == 1) {
    LargestFirst(keys, size);
  } else {
    SortDescending(keys, size);
  }
  Key* const mine = out + std::int64_t{blockIdx.x} * count;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    mine[i] = i < size ? keys[i] : 0;
  }
}

// The sum of each slice's weights.
__global__ void WeightSumKernel(const float* logits, int vocab, const Key* best,
                                float temperature, double* sums) {
  double* const lanes = SharedMemory<double>();
  const float largest = LogitOf(*best);
  const int lane = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * kSliceIds;
  const int end = Min(vocab, first + kSliceIds);
  double sum = 0.0;
  for (int i = first + lane; i < end; i += kSliceLanes) {
    sum += TokenWeight(logits[i], largest, temperature);
  }
  lanes[lane] = sum;
  for (int half = kSliceLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] += lanes[lane + half];
  }
  if (lane == 0) sums[blockIdx.x] = lanes[0];
}

struct KnownWeights {
  const double* weights;
  int known;
  constexpr bool Has(int rank) const { return rank < known; }
  constexpr double Weight(int rank) const { return weights[rank]; }
};

// One block. `sums`: of `slices`; null where top_k leaves them out.
__global__ void TokenKernel(const Key* ranked, int known, int vocab,
                            const double* sums, int slices, TokenChoice choice,
                            ChosenToken* out) {
  double* const weights = SharedMemory<double>();
  const Key best = ranked[0];
  const bool draws =
      OrderOf(best) != kNotFiniteOrder && choice.temperature != 0.0f;
  const int mine = static_cast<int>(threadIdx.x);
  if (draws && mine < known) {
    weights[mine] =
        TokenWeight(LogitOf(ranked[mine]), LogitOf(best), choice.temperature);
  }
  __syncthreads();
  if (mine != 0) return;
  ChosenToken result;
  result.id = IdOf(best);
  result.outcome = OrderOf(best) == kNotFiniteOrder
                       ? ChosenToken::Outcome::kNotFinite
                       : ChosenToken::Outcome::kChosen;
  if (draws) {
    double total = 0.0;
    for (int i = 0; i < slices; ++i) total += sums[i];
    const KnownWeights candidates = {weights, known};
    const int rank = DrawRank(candidates, vocab, total, choice);
    if (rank == kTooFewCandidates) {
      result.outcome = ChosenToken::Outcome::kUndecided;
    } else {
      result.id = IdOf(ranked[rank]);
    }
  }
  *out = result;
}

unsigned Slices(int n) { return BlocksFor(n, kSliceIds); }

int CandidatesFor(const TokenChoice& choice, int vocab) {
  if (choice.temperature == 0.0f) return 1;
  const int wanted = CutsToTopK(choice, vocab) ? choice.top_k : vocab;
  return std::min(wanted, kMostCandidates);
}

template <typename Source>
cudaError_t Rank(cudaStream_t stream, Source source, int n, int count,
                 Key* out) {
  return Launch(RankKernel<Source>, dim3(Slices(n)), kThreads,
                kSliceIds * sizeof(Key), stream, source, n, count, out);
}

}  // namespace

std::size_t ChoiceScratchBytes(int vocab) {
  // Two lists of candidates that take turns, and a sum a slice.
  const std::size_t slices = Slices(vocab);
  return 2 * slices * kMostCandidates * sizeof(Key) + slices * sizeof(double);
}

cudaError_t ChooseToken(cudaStream_t stream, const float* logits, int vocab,
                        const TokenChoice& choice, void* scratch,
                        ChosenToken* out) {
  const int slices = static_cast<int>(Slices(vocab));
  const int count = CandidatesFor(choice, vocab);
  Key* ranked = static_cast<Key*>(scratch);
  Key* other = ranked + std::int64_t{slices} * kMostCandidates;
  double* const sums =
      reinterpret_cast<double*>(other + std::int64_t{slices} * kMostCandidates);
  cudaError_t error = Rank(stream, Logits{logits}, vocab, count, ranked);
  for (int lists = slices; error == cudaSuccess && lists > 1;) {
    const int n = lists * count;
    error = Rank(stream, Keys{ranked}, n, count, other);
    lists = static_cast<int>(Slices(n));
    Key* const best = other;
    other = ranked;
    ranked = best;
  }
  if (error != cudaSuccess) return error;
  const bool sums_all =
      choice.temperature != 0.0f && !CutsToTopK(choice, vocab);
  if (sums_all) {
    error = Launch(WeightSumKernel, dim3(static_cast<unsigned>(slices)),
                   kThreads, kSliceLanes * sizeof(double), stream, logits,
                   vocab, ranked, choice.temperature, sums);
    if (error != cudaSuccess) return error;
  }
  return Launch(TokenKernel, dim3(1), kThreads,
                kMostCandidates * sizeof(double), stream, ranked, count, vocab,
                sums, sums_all ? slices : 0, choice, out);
}

}  // namespace holdfast::kernels::cuda
