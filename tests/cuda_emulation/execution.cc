#include "tests/cuda_emulation/execution.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/float16.h"

namespace holdfast::emulation {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kWarpLanes = 32;
constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kMostSharedBytes = 256 << 10;

struct Context {
  ucontext_t user;
  std::jmp_buf jump;
  bool started = false;  // jump is valid
};

// Unlike swapcontext this asks nothing of the kernel.
__attribute__((noinline)) void Switch(Context& from, Context& to) {
  if (_setjmp(from.jump) != 0) return;
  from.started = true;
  if (to.started) _longjmp(to.jump, 1);
  setcontext(&to.user);
}

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Thread {
  Context context;
  State state = State::kDone;
  dim3 index;
  int turn = 0;  // of the warp's exchange
  std::vector<Copy> open_group;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  int waiting = 0;
  WarpOperation operation = WarpOperation::kNone;
  alignas(16) std::byte slots[2][kWarpLanes][kExchangeBytes];
};

[[noreturn]] void Fatal(const char* what) {
  std::fprintf(stderr, "emulated block (%u, %u, %u), thread (%u, %u, %u): %s\n",
               blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
               threadIdx.z, what);
  std::abort();
}

// The machine: one block at a time.
class Device {
 public:
  static Device& Get() {
    static Device device;
    return device;
  }

  void SetOrder(Order order, std::uint64_t seed) {
    order_ = order;
    random_.seed(seed);
  }

  void Run(dim3 grid, dim3 block, std::size_t shared_bytes,
           const std::function<void()>& body) {
    const int threads = static_cast<int>(block.x * block.y * block.z);
    if (threads < 1 || threads > kMostThreads || threads % kWarpLanes != 0) {
      Fatal("a block is 1 to 32 whole warps");
    }
    if (shared_bytes > kMostSharedBytes) Fatal("too much shared memory");
    Prepare(threads);
    body_ = &body;
    gridDim = grid;
    blockDim = block;
    shared_bytes_ = shared_bytes;
    const auto blocks = Ordered(static_cast<int>(grid.x * grid.y * grid.z));
    for (const int i : blocks) {
      const unsigned n = static_cast<unsigned>(i);
      blockIdx = dim3(n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y);
      RunBlock(threads);
    }
    body_ = nullptr;
  }

  void Yield(State state) {
    Thread& thread = *current_;
    thread.state = state;
    const dim3 index = thread.index;
    Switch(thread.context, scheduler_);
    threadIdx = index;
  }

  // Whether an asynchronous copy happens when it is asked for, or waits until
  // it must: both are allowed.
  bool CopyNow() {
    if (order_ == Order::kShuffled) return (random_() & 1) != 0;
    return order_ == Order::kDescending;
  }

  Thread& thread() { return *current_; }
  Warp& warp() { return warps_[current_number_ / kWarpLanes]; }
  void* shared() { return shared_.get(); }

 private:
  static void Entry() {
    Device& device = Get();
    for (;;) {
      (*device.body_)();
      device.Yield(State::kDone);
    }
  }

  void Prepare(int threads) {
    if (shared_ == nullptr) {
      shared_.reset(
          static_cast<std::byte*>(std::aligned_alloc(128, kMostSharedBytes)));
    }
    while (static_cast<int>(threads_.size()) < threads) {
      auto thread = std::make_unique<Thread>();
      void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) Fatal("no memory for a stack");
      getcontext(&thread->context.user);
      thread->context.user.uc_stack.ss_sp = stack;
      thread->context.user.uc_stack.ss_size = kStackBytes;
      thread->context.user.uc_link = nullptr;
      makecontext(&thread->context.user, &Entry, 0);
      threads_.push_back(std::move(thread));
    }
    if (warps_.size() < threads_.size() / kWarpLanes + 1) {
      warps_.resize(threads_.size() / kWarpLanes + 1);
    }
  }

  std::vector<int> Ordered(int count) {
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    if (order_ == Order::kDescending) {
      std::reverse(order.begin(), order.end());
    } else if (order_ == Order::kShuffled) {
      std::shuffle(order.begin(), order.end(), random_);
    }
    return order;
  }

  void RunBlock(int threads) {
    std::memset(shared_.get(), 0xff, shared_bytes_);
    for (int i = 0; i < threads; ++i) {
      Thread& thread = *threads_[i];
      const unsigned n = static_cast<unsigned>(i);
      thread.index = dim3(n % blockDim.x, n / blockDim.x % blockDim.y,
                          n / blockDim.x / blockDim.y);
      thread.state = State::kReady;
      thread.turn = 0;
      thread.open_group.clear();
      thread.groups.clear();
    }
    for (Warp& warp : warps_) warp.waiting = 0;
    at_block_ = 0;
    int done = 0;
    const auto order = Ordered(threads);
    while (done < threads) {
      bool progressed = false;
      if (order_ == Order::kAscending) {
        progressed = Pass(order, threads, &done);
      } else {
        // A warp runs as far ahead of the others as barriers let it.
        for (const int warp : Ordered(threads / kWarpLanes)) {
          std::vector<int> lanes;
          for (const int i : order) {
            if (i / kWarpLanes == warp) lanes.push_back(i);
          }
          while (Pass(lanes, threads, &done)) progressed = true;
        }
      }
      if (!progressed) Fatal("a barrier that not all threads reach");
    }
  }

  // Runs each of these that can go on, once; whether any could.
  bool Pass(const std::vector<int>& order, int threads, int* done) {
    bool progressed = false;
    for (const int i : order) {
      if (threads_[i]->state != State::kReady) continue;
      progressed = true;
      Resume(i);
      if (threads_[i]->state == State::kDone) ++*done;
      if (threads_[i]->state == State::kAtBlock) Arrive(threads);
    }
    return progressed;
  }

  void Resume(int i) {
    current_ = threads_[i].get();
    current_number_ = i;
    threadIdx = current_->index;
    Switch(scheduler_, current_->context);
    if (current_->state != State::kAtWarp) return;
    Warp& warp = warps_[i / kWarpLanes];
    if (++warp.waiting < kWarpLanes) return;
    warp.waiting = 0;
    const int first = i / kWarpLanes * kWarpLanes;
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      threads_[first + lane]->state = State::kReady;
    }
  }

  void Arrive(int threads) {
    if (++at_block_ < threads) return;
    at_block_ = 0;
    for (int i = 0; i < threads; ++i) threads_[i]->state = State::kReady;
  }

  Order order_ = Order::kAscending;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> shared_;
  std::size_t shared_bytes_ = 0;
  const std::function<void()>* body_ = nullptr;
  Context scheduler_;
  Thread* current_ = nullptr;
  int current_number_ = 0;
  int at_block_ = 0;
};

float Half(std::uint32_t pair, int half) {
  return kernels::Bf16ToFloat(
      static_cast<std::uint16_t>(half == 0 ? pair : pair >> 16));
}

struct MmaGiven {
  std::uint32_t a[4];
  std::uint32_t b[2];
};

MmaGiven MmaOf(int lane) {
  MmaGiven given;
  std::memcpy(&given, ExchangeSlot(lane), sizeof(given));
  return given;
}

}  // namespace

void SetOrder(Order order, std::uint64_t seed) {
  Device::Get().SetOrder(order, seed);
}

void RunGrid(dim3 grid, dim3 block, std::size_t shared_bytes,
             const std::function<void()>& body) {
  Device::Get().Run(grid, block, shared_bytes, body);
}

void* SharedMemory() { return Device::Get().shared(); }

void BlockBarrier() { Device::Get().Yield(State::kAtBlock); }

void WarpBarrier(WarpOperation operation) {
  Warp& warp = Device::Get().warp();
  if (warp.waiting == 0) warp.operation = operation;
  if (warp.operation != operation) {
    Fatal("lanes of a warp meet in different operations");
  }
  Device::Get().Yield(State::kAtWarp);
}

void* ExchangeSlot(int lane) {
  Device& device = Device::Get();
  return device.warp().slots[device.thread().turn][lane];
}

void NextExchange() { Device::Get().thread().turn ^= 1; }

void CopyAsync(void* to, const void* from, std::size_t bytes) {
  if (Device::Get().CopyNow()) {
    std::memcpy(to, from, bytes);
    return;
  }
  Device::Get().thread().open_group.push_back({to, from, bytes});
}

void CommitCopies() {
  Thread& thread = Device::Get().thread();
  thread.groups.push_back(std::move(thread.open_group));
  thread.open_group.clear();
}

void WaitCopies(int groups_left) {
  Thread& thread = Device::Get().thread();
  while (static_cast<int>(thread.groups.size()) > groups_left) {
    for (const Copy& copy : thread.groups.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    thread.groups.pop_front();
  }
}

// Lane l holds, with g = l / 4 and t = l % 4: of A rows g (registers 0 and 2)
// and g + 8 (1 and 3), columns 2t, 2t + 1 (0 and 1) and 8 more (2 and 3); of B
// column g, rows 2t, 2t + 1 and 8 more; of D rows g and g + 8, columns 2t and
// 2t + 1.
void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4],
             const std::uint32_t (&b)[2]) {
  MmaGiven mine;
  std::memcpy(mine.a, a, sizeof(mine.a));
  std::memcpy(mine.b, b, sizeof(mine.b));
  std::memcpy(ExchangeSlot(Lane()), &mine, sizeof(mine));
  WarpBarrier(WarpOperation::kMma);
  const int g = Lane() / 4;
  const int t = Lane() % 4;
  for (int pair = 0; pair < 4; ++pair) {
    const MmaGiven row = MmaOf(g * 4 + pair);
    for (int column = 0; column < 2; ++column) {
      const MmaGiven other = MmaOf((2 * t + column) * 4 + pair);
      for (int upper = 0; upper < 2; ++upper) {
        for (int half = 0; half < 2; ++half) {
          const float w = Half(other.b[upper], half);
          d[column] = std::fma(Half(row.a[2 * upper], half), w, d[column]);
          d[2 + column] =
              std::fma(Half(row.a[2 * upper + 1], half), w, d[2 + column]);
        }
      }
    }
  }
  NextExchange();
}

}  // namespace holdfast::emulation
