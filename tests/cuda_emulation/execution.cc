#include "tests/cuda_emulation/execution.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/float16.h"
#include "tests/cuda_emulation/late_writes.h"

namespace holdfast::emulation {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kWarpLanes = 32;
constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kMostSharedBytes = 256 << 10;
constexpr std::size_t kGuardBytes = 64 << 10;  // whole pages, whatever a page
constexpr std::size_t kCanaryBytes = 128;
constexpr unsigned char kFreshShared = 0xff;  // NaN, whatever the type
constexpr int kNobody = -1;
// Looked at whenever a thread stops.
constexpr std::size_t kMostLateBytes = 16 << 10;

struct Context {
  ucontext_t user;
  void* jump[5];
  bool started = false;  // jump is valid
};

// In a function of its own, as the compiler's long jump must be.
[[noreturn]] __attribute__((noinline)) void Jump(Context& to) {
  if (to.started) __builtin_longjmp(to.jump, 1);
  setcontext(&to.user);
  std::abort();  // there is no such context
}

// The compiler's own: no call of the kernel, as swapcontext makes, and nothing
// of what the C library's longjmp does beside. Most of a test's time is here.
__attribute__((noinline)) void Switch(Context& from, Context& to) {
  if (__builtin_setjmp(from.jump) != 0) return;
  from.started = true;
  Jump(to);
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

  // The running thread stops here; who can go on does, on its own stack: this
  // returns when it is this thread's turn again.
  void Yield(State state) {
    Thread& thread = *current_;
    thread.state = state;
    if (late_.active()) {
      late_.Leave(current_number_);
      if (state != State::kAtWarp || warp().operation == WarpOperation::kSync) {
        late_.Publish(current_number_);
      }
    }
    switch (state) {
      case State::kAtWarp:
        ArriveAtWarp();
        break;
      case State::kAtBlock:
        ArriveAtBlock();
        break;
      case State::kDone:
        ++done_;
        break;
      case State::kReady:
        break;
    }
    const int next = Next();
    if (next == kNobody) {
      if (done_ < threads_in_block_) {
        Fatal("a barrier that not all threads reach");
      }
      return Switch(thread.context, scheduler_);
    }
    SetCurrent(next);
    if (current_ == &thread) return;
    Switch(thread.context, current_->context);
  }

  // All threads of a block are at the same one.
  void MeetAt(unsigned line) {
    if (at_block_ == 0) barrier_line_ = line;
    if (barrier_line_ != line) {
      Fatal("threads of a block meet at different barriers");
    }
    Yield(State::kAtBlock);
  }

  // Whether an asynchronous copy happens when it is asked for, or waits until
  // it must: both are allowed.
  bool CopyNow() {
    if (Shuffles()) return (random_() & 1) != 0;
    return order_ == Order::kDescending;
  }

  Thread& thread() { return *current_; }
  Warp& warp() { return warps_[current_number_ / kWarpLanes]; }
  void* shared() { return shared_end_ - SharedRoom(); }

 private:
  bool Shuffles() const {
    return order_ == Order::kShuffled || order_ == Order::kLate;
  }

  static void Entry() {
    Device& device = Get();
    for (;;) {
      (*device.body_)();
      device.Yield(State::kDone);
    }
  }

  void Prepare(int threads) {
    if (shared_end_ == nullptr) {
      // It ends where a page begins that nobody may touch.
      void* memory = mmap(nullptr, kMostSharedBytes + 2 * kGuardBytes,
                          PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) Fatal("no memory for shared memory");
      shared_end_ =
          static_cast<std::byte*>(memory) + kMostSharedBytes + kGuardBytes;
      if (mprotect(shared_end_, kGuardBytes, PROT_NONE) != 0) {
        Fatal("no guard behind shared memory");
      }
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
    } else if (Shuffles()) {
      std::shuffle(order.begin(), order.end(), random_);
    }
    return order;
  }

  void RunBlock(int threads) {
    std::memset(static_cast<std::byte*>(shared()) - kCanaryBytes, kFreshShared,
                kCanaryBytes + SharedRoom());
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
    at_block_ = done_ = 0;
    threads_in_block_ = threads;
    const bool late = order_ == Order::kLate && shared_bytes_ <= kMostLateBytes;
    late_.Begin(static_cast<std::byte*>(shared()), late ? shared_bytes_ : 0,
                threads);
    MakeRounds(threads);
    SetCurrent(Next());
    Switch(scheduler_, current_->context);
    CheckShared();
  }

  std::size_t SharedRoom() const {
    return (shared_bytes_ + kCanaryBytes - 1) / kCanaryBytes * kCanaryBytes;
  }
  // Beyond the guard page's grasp: what lies before, and up to the next 128.
  void CheckShared() {
    const auto* start = static_cast<const std::byte*>(shared());
    const std::byte* const end = shared_end_;
    const auto fresh = [](std::byte byte) {
      return byte == std::byte{kFreshShared};
    };
    if (!std::all_of(start - kCanaryBytes, start, fresh) ||
        !std::all_of(start + shared_bytes_, end, fresh)) {
      Fatal("a write outside of the block's shared memory");
    }
  }

  // In which order the block's threads have their turns: round_ holds them in
  // groups of group_size_, and those of a group run until none can go on.
  void MakeRounds(int threads) {
    round_ = Ordered(threads);
    group_size_ = threads;
    if (order_ != Order::kAscending) {
      // A warp runs as far ahead of the others as barriers let it.
      group_size_ = kWarpLanes;
      std::stable_sort(round_.begin(), round_.end(), [](int a, int b) {
        return a / kWarpLanes < b / kWarpLanes;
      });
    }
    groups_ = Ordered(threads / group_size_);
    group_at_ = 0;
    turn_ = group_size_ - 1;
    progressed_ = false;
  }

  // Whose turn is next; kNobody: no thread can go on.
  int Next() {
    for (;;) {
      const int* const group = &round_[groups_[group_at_] * group_size_];
      for (int i = 0; i < group_size_; ++i) {
        if (++turn_ == group_size_) turn_ = 0;
        if (threads_[group[turn_]]->state == State::kReady) {
          progressed_ = true;
          return group[turn_];
        }
      }
      turn_ = group_size_ - 1;
      if (++group_at_ < static_cast<int>(groups_.size())) continue;
      group_at_ = 0;
      if (!std::exchange(progressed_, false)) return kNobody;
      groups_ = Ordered(static_cast<int>(groups_.size()));
    }
  }

  void SetCurrent(int i) {
    current_ = threads_[i].get();
    current_number_ = i;
    threadIdx = current_->index;
    if (late_.active()) late_.Enter(i);
  }

  void ArriveAtWarp() {
    Warp& arrived = warp();
    if (++arrived.waiting < kWarpLanes) return;
    arrived.waiting = 0;
    const int first = current_number_ / kWarpLanes * kWarpLanes;
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      threads_[first + lane]->state = State::kReady;
    }
  }

  void ArriveAtBlock() {
    if (++at_block_ < threads_in_block_) return;
    at_block_ = 0;
    for (int i = 0; i < threads_in_block_; ++i) {
      threads_[i]->state = State::kReady;
    }
  }

  Order order_ = Order::kAscending;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::byte* shared_end_ = nullptr;
  std::size_t shared_bytes_ = 0;
  const std::function<void()>* body_ = nullptr;
  LateWrites late_;
  Context scheduler_;
  Thread* current_ = nullptr;
  int current_number_ = 0;
  // Of the running block.
  int threads_in_block_ = 0;
  int done_ = 0;
  int at_block_ = 0;
  unsigned barrier_line_ = 0;
  std::vector<int> round_;
  std::vector<int> groups_;
  int group_size_ = 0;
  int group_at_ = 0;  // in groups_
  int turn_ = 0;      // in the group
  bool progressed_ = false;
};

float Half(std::uint32_t pair, int half) {
  return kernels::Bf16ToFloat(
      static_cast<std::uint16_t>(half == 0 ? pair : pair >> 16));
}

struct MmaGiven {
  std::uint32_t a[4];
  std::uint32_t b[2];
};

const MmaGiven& MmaOf(const std::byte* slots, int lane) {
  return *reinterpret_cast<const MmaGiven*>(slots + lane * kExchangeBytes);
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

void BlockBarrier(unsigned line) { Device::Get().MeetAt(line); }

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
  if ((reinterpret_cast<std::uintptr_t>(to) |
       reinterpret_cast<std::uintptr_t>(from)) %
          bytes !=
      0) {
    Fatal("an asynchronous copy at no multiple of its size");
  }
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
  auto* const slots = static_cast<std::byte*>(ExchangeSlot(0));
  auto* const mine = new (slots + Lane() * kExchangeBytes) MmaGiven;
  std::copy_n(a, 4, mine->a);
  std::copy_n(b, 2, mine->b);
  WarpBarrier(WarpOperation::kMma);
  const int g = Lane() / 4;
  const int t = Lane() % 4;
  for (int pair = 0; pair < 4; ++pair) {
    const MmaGiven& row = MmaOf(slots, g * 4 + pair);
    for (int column = 0; column < 2; ++column) {
      const MmaGiven& other = MmaOf(slots, (2 * t + column) * 4 + pair);
      for (int upper = 0; upper < 2; ++upper) {
        for (int half = 0; half < 2; ++half) {
          const float w = Half(other.b[upper], half);
          // A product of two bf16 numbers is a float.
          d[column] += Half(row.a[2 * upper], half) * w;
          d[2 + column] += Half(row.a[2 * upper + 1], half) * w;
        }
      }
    }
  }
  NextExchange();
}

}  // namespace holdfast::emulation
