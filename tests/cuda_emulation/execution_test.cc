// The emulation itself: kernels with a mistake in them are caught, each beside
// the same kernel without it, and the matrix unit multiplies.
#include "tests/cuda_emulation/execution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/cuda/device.h"
#include "tests/cuda_emulation/fake_runtime.h"
#include "tests/cuda_emulation/orders.h"

namespace holdfast::emulation {
namespace {

using kernels::cuda::Lane;
using kernels::cuda::Launch;
using kernels::cuda::SharedMemory;

constexpr int kThreads = 96;
constexpr int kBlocks = 4;
constexpr int kNumbers = kThreads * kBlocks;
constexpr std::size_t kShared = kThreads * sizeof(float);

int Here() { return static_cast<int>(blockIdx.x * kThreads + threadIdx.x); }
int Thread() { return static_cast<int>(threadIdx.x); }

using Kernel = void (*)(const float* in, float* out);

// Another warp's number is read before all have written theirs.
template <bool kRight>
__global__ void ReadTooEarly(const float* in, float* out) {
  auto* const shared = SharedMemory<float>();
  shared[Thread()] = in[Here()];
  if (kRight) __syncthreads();
  out[Here()] = shared[(Thread() + 40) % kThreads];
}

// A number is overwritten while another warp may still want it.
template <bool kRight>
__global__ void OverwriteTooEarly(const float* in, float* out) {
  auto* const shared = SharedMemory<float>();
  shared[Thread()] = in[Here()];
  __syncthreads();
  const float other = shared[(Thread() + 40) % kThreads];
  if (kRight) __syncthreads();
  shared[Thread()] = -1.0f;
  out[Here()] = other;
}

// The same between lanes of a warp.
template <bool kRight>
__global__ void ReadTooEarlyInAWarp(const float* in, float* out) {
  auto* const shared = SharedMemory<float>();
  shared[Thread()] = in[Here()];
  if (kRight) __syncwarp();
  out[Here()] = shared[Thread() ^ 5];
}

// The same behind a shuffle, which orders nothing.
template <bool kRight>
__global__ void ReadBehindAShuffle(const float* in, float* out) {
  auto* const shared = SharedMemory<float>();
  shared[Thread()] = in[Here()];
  const float moved = __shfl_xor_sync(~0u, in[Here()], 3);
  if (kRight) __syncwarp();
  out[Here()] = shared[Thread() ^ 5] + moved;
}

// Blocks share a number; none waits for another.
template <bool kRight>
__global__ void ShareBetweenBlocks(const float* in, float* out) {
  const int at = kRight ? Here() : Thread();
  out[at] = 2.0f * out[at] + in[Here()];
}

// Sums of floats depend on their order; of integers they do not.
template <bool kRight>
__global__ void AddInAnyOrder(const float* in, float* out) {
  if (kRight) {
    atomicAdd(reinterpret_cast<unsigned*>(out),
              static_cast<unsigned>(in[Here()] * 8.0f));
  } else {
    atomicAdd(out, in[Here()] * (Here() % 2 == 0 ? 1e8f : 1.0f));
  }
}

// A copy in the background is read before it has been waited for.
template <bool kRight>
__global__ void ReadCopyTooEarly(const float* in, float* out) {
  auto* const shared = SharedMemory<float>();
  if (Thread() % 4 == 0) {
    kernels::cuda::CopyAsync16(&shared[Thread()], &in[Here()]);
  }
  kernels::cuda::CommitCopies();
  if (kRight) kernels::cuda::WaitCopies<0>();
  __syncthreads();
  out[Here()] = shared[(Thread() + 40) % kThreads];
}

class ExecutionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ResetFakeRuntime({});
    for (int i = 0; i < kNumbers; ++i) {
      in_.push_back(static_cast<float>(i * 37 % 101) / 8.0f);
    }
  }
  void TearDown() override { SetOrder(Order::kAscending); }

  std::vector<float> Run(Kernel kernel, const RunOrder& run,
                         std::size_t shared_bytes = kShared) {
    SetOrder(run.order, run.seed);
    std::vector<float> out(kNumbers);
    EXPECT_EQ(Launch(kernel, dim3(kBlocks), kThreads, shared_bytes, nullptr,
                     in_.data(), out.data()),
              cudaSuccess);
    return out;
  }
  // What a test of a kernel looks at: its bytes in every order.
  bool EqualInEveryOrder(Kernel kernel) {
    const auto first = Run(kernel, kRunOrders[0]);
    bool equal = true;
    for (const RunOrder& run : std::span(kRunOrders).subspan(1)) {
      const auto other = Run(kernel, run);
      equal = equal && std::memcmp(first.data(), other.data(),
                                   kNumbers * sizeof(float)) == 0;
    }
    return equal;
  }

  std::vector<float> in_;
};

TEST_F(ExecutionTest, RacesShowInSomeOrderAndTheirMendedTwinsInNone) {
  const struct {
    const char* name;
    Kernel racy, right;
  } kCases[] = {
      {"read", ReadTooEarly<false>, ReadTooEarly<true>},
      {"overwrite", OverwriteTooEarly<false>, OverwriteTooEarly<true>},
      {"warp", ReadTooEarlyInAWarp<false>, ReadTooEarlyInAWarp<true>},
      {"shuffle", ReadBehindAShuffle<false>, ReadBehindAShuffle<true>},
      {"blocks", ShareBetweenBlocks<false>, ShareBetweenBlocks<true>},
      {"atomics", AddInAnyOrder<false>, AddInAnyOrder<true>},
      {"copies", ReadCopyTooEarly<false>, ReadCopyTooEarly<true>},
  };
  for (const auto& test : kCases) {
    EXPECT_FALSE(EqualInEveryOrder(test.racy)) << test.name;
    EXPECT_TRUE(EqualInEveryOrder(test.right)) << test.name;
  }
}

// Seeds are orders of their own, and the same one each time.
TEST_F(ExecutionTest, AShuffleIsAnotherWithAnotherSeed) {
  const auto of = [this](std::uint64_t seed) {
    return Run(AddInAnyOrder<false>, {Order::kShuffled, seed})[0];
  };
  EXPECT_EQ(of(1), of(1));
  EXPECT_TRUE(of(1) != of(2) || of(2) != of(3));
}

__global__ void ReadFresh(const float*, float* out) {
  out[Here()] = SharedMemory<float>()[Thread()];
}

TEST_F(ExecutionTest, SharedMemoryStartsAsNan) {
  // Also after a block that wrote to it.
  (void)Run(OverwriteTooEarly<true>, kRunOrders[0]);
  for (const float number : Run(ReadFresh, kRunOrders[0])) {
    EXPECT_TRUE(std::isnan(number));
  }
}

__global__ void BarrierOfSome(const float*, float*) {
  if (Thread() < 64) __syncthreads();
}
__global__ void TwoBarriers(const float*, float*) {
  if (Thread() < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void ShuffleOfSome(const float* in, float* out) {
  if (Lane() < 31) out[Here()] = __shfl_xor_sync(~0u, in[Here()], 1);
}
__global__ void TwoOperations(const float* in, float* out) {
  if (Lane() < 16) {
    __syncwarp();
  } else {
    out[Here()] = __shfl_xor_sync(~0u, in[Here()], 1);
  }
}

using ExecutionDeathTest = ExecutionTest;

TEST_F(ExecutionDeathTest, BarriersThatNotAllReachTogetherAreFatal) {
  for (const RunOrder& run : kRunOrders) {
    EXPECT_DEATH(Run(BarrierOfSome, run), "a barrier that not all threads");
    EXPECT_DEATH(Run(TwoBarriers, run), "meet at different barriers");
    EXPECT_DEATH(Run(ShuffleOfSome, run), "a barrier that not all threads");
    EXPECT_DEATH(Run(TwoOperations, run), "meet in different operations");
  }
}

template <int kAt>
__global__ void WriteAt(const float*, float*) {
  if (Thread() == 0) SharedMemory<float>()[kAt] = 1.0f;
}
template <int kAt>
__global__ void ReadAt(const float*, float* out) {
  volatile const float* const from = SharedMemory<float>() + kAt;
  out[Here()] = *from;
}

TEST_F(ExecutionDeathTest, AccessesOutsideOfSharedMemoryAreFatal) {
  constexpr std::size_t kBytes = 40 * sizeof(float);
  for (const Kernel kernel : {WriteAt<0>, WriteAt<39>, ReadAt<39>}) {
    (void)Run(kernel, kRunOrders[0], kBytes);
  }
  EXPECT_DEATH(Run(WriteAt<40>, kRunOrders[0], kBytes), "outside of the block");
  EXPECT_DEATH(Run(WriteAt<-1>, kRunOrders[0], kBytes), "outside of the block");
  for (const Kernel kernel : {WriteAt<64>, ReadAt<64>, ReadAt<5000>}) {
    EXPECT_EXIT(Run(kernel, kRunOrders[0], kBytes),
                ::testing::KilledBySignal(SIGSEGV), "");
  }
}

template <int kOffset>
__global__ void LoadVectorAt(const float* in, float* out) {
  out[Here()] = reinterpret_cast<const float4*>(in + kOffset)->w;
}
template <int kOffset>
__global__ void StoreVectorAt(const float* in, float* out) {
  if (Thread() == 0) {
    *reinterpret_cast<float2*>(SharedMemory<float>() + kOffset) =
        float2{in[0], in[1]};
  }
  out[Here()] = in[Here()];
}
template <int kOffset>
__global__ void CopyTo(const float* in, float* out) {
  if (Thread() == 0) {
    kernels::cuda::CopyAsync16(SharedMemory<float>() + kOffset, in);
  }
  kernels::cuda::CommitCopies();
  kernels::cuda::WaitCopies<0>();
  out[Here()] = in[Here()];
}

TEST_F(ExecutionDeathTest, VectorsAtOddAddressesAreFatal) {
  in_.reserve(in_.size() + 4);
  for (const Kernel kernel :
       {LoadVectorAt<0>, LoadVectorAt<4>, StoreVectorAt<2>, CopyTo<4>}) {
    (void)Run(kernel, kRunOrders[0]);
  }
  for (const Kernel kernel :
       {LoadVectorAt<1>, LoadVectorAt<2>, StoreVectorAt<1>}) {
    EXPECT_EXIT(Run(kernel, kRunOrders[0]), ::testing::KilledBySignal(SIGILL),
                "");
  }
  EXPECT_DEATH(Run(CopyTo<2>, kRunOrders[0]), "no multiple of its size");
}

// ---- the matrix unit ----

constexpr int kRows = 16;
constexpr int kInner = 16;
constexpr int kCols = 8;

std::uint32_t Pair(float low, float high) {
  return kernels::cuda::FloatToBf16(low) | kernels::cuda::FloatToBf16(high)
                                               << 16;
}

// One warp: D = A B + C, with fragments as the instruction's manual has them.
// in: A by rows, B by rows, C by rows.
__global__ void MultiplyKernel(const float* in, float* out) {
  const float* const a = in;
  const float* const b = in + kRows * kInner;
  const float* const c = b + kInner * kCols;
  const int group = Lane() >> 2;
  const int in_group = Lane() % 4;
  std::uint32_t a_of[4];
  for (int i = 0; i < 4; ++i) {
    const int row = i == 0 || i == 2 ? group : group + 8;
    const int col = in_group * 2 + (i < 2 ? 0 : 8);
    a_of[i] = Pair(a[row * kInner + col], a[row * kInner + col + 1]);
  }
  std::uint32_t b_of[2];
  for (int i = 0; i < 2; ++i) {
    const int row = in_group * 2 + 8 * i;
    b_of[i] = Pair(b[row * kCols + group], b[(row + 1) * kCols + group]);
  }
  float d[4];
  const auto at = [&](int i) {
    const int row = i < 2 ? group : group + 8;
    return row * kCols + in_group * 2 + (i & 1);
  };
  for (int i = 0; i < 4; ++i) d[i] = c[at(i)];
  kernels::cuda::MmaBf16(d, a_of, b_of);
  for (int i = 0; i < 4; ++i) out[at(i)] = d[i];
}

std::vector<double> PlainProduct(const std::vector<float>& in) {
  std::vector<double> d;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      double sum = in[kRows * kInner + kInner * kCols + row * kCols + col];
      for (int k = 0; k < kInner; ++k) {
        sum += static_cast<double>(in[row * kInner + k]) *
               in[kRows * kInner + k * kCols + col];
      }
      d.push_back(sum);
    }
  }
  return d;
}

// Eighths of small integers: every sum is exact.
TEST_F(ExecutionTest, TheMatrixUnitIsAPlainProduct) {
  std::uint32_t state = 1;
  std::vector<float> in;
  for (int i = 0; i < kRows * kInner + kInner * kCols + kRows * kCols; ++i) {
    state = state * 1664525u + 1013904223u;
    in.push_back(static_cast<float>(static_cast<int>(state >> 27) - 16) / 8.0f);
  }
  const auto want = PlainProduct(in);
  for (const RunOrder& run : kRunOrders) {
    SetOrder(run.order, run.seed);
    std::vector<float> got(kRows * kCols);
    ASSERT_EQ(
        Launch(MultiplyKernel, dim3(1), 32, 0, nullptr, in.data(), got.data()),
        cudaSuccess);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << i;
  }
}

}  // namespace
}  // namespace holdfast::emulation
