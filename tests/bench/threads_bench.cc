#include "tests/bench/threads_bench.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "kernels/host/thread_pool.h"
#include "tests/bench/compare.h"
#include "tests/bench/median.h"
#include "tests/bench/model_runner.h"
#include "tests/bench/plain_read.h"

namespace holdfast::bench {
namespace {

constexpr std::size_t kReadBytes = 128u << 20;  // beyond any cache here
constexpr int kLoops = 1000;
constexpr double kMicro = 1e6;

template <typename Body>
double SecondsOf(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

class MachineProbe {
 public:
  MachineProbe() : one_(1), two_(kThreads), read_(kReadBytes) {}

  ThreadsMachine Measure() {
    ThreadsMachine machine;
    machine.one_read = kReadBytes / ReadSeconds(one_) * 1e-9;
    machine.two_read = kReadBytes / ReadSeconds(two_) * 1e-9;
    machine.loop_us = kMicro / kLoops * SecondsOf([&] {
                        for (int i = 0; i < kLoops; ++i) {
                          two_.For(2 * kThreads, [](int, int) {});
                        }
                      });
    return machine;
  }

 private:
  // The better of two: the first may wake a thread.
  double ReadSeconds(kernels::ThreadPool& pool) {
    const double first = SecondsOf([&] { read_.Run(pool); });
    return std::min(first, SecondsOf([&] { read_.Run(pool); }));
  }

  kernels::ThreadPool one_, two_;
  PlainRead read_;
};

// What the rounds saw of one operation of one test.
struct Samples {
  std::vector<double> share, one, two, gain, gb_per_s, most;
};
using Key =
    std::tuple<std::string, int, std::string>;  // test, depth, operation

class Rounds {
 public:
  void Add(const ModelSpeed& one, const ModelSpeed& two,
           const ThreadsMachine& machine) {
    const double whole = two.tokens / two.tokens_per_s;
    AddOne({one.test, one.depth, ""}, {"", 1, one.tokens / one.tokens_per_s, 0},
           {"", 1, whole, 0}, whole, machine);
    for (const OperationTime& operation : two.operations) {
      for (const OperationTime& other : one.operations) {
        if (other.name != operation.name) continue;
        AddOne({one.test, one.depth, other.name}, other, operation, whole,
               machine);
      }
    }
  }

  std::vector<ThreadsGain> Medians() const {
    std::vector<ThreadsGain> gains;
    for (const auto& [key, s] : samples_) {
      ThreadsGain gain;
      std::tie(gain.test, gain.depth, gain.operation) = key;
      gain.share = Median(s.share);
      gain.one_us = Median(s.one);
      gain.two_us = Median(s.two);
      gain.gain = Median(s.gain);
      gain.gb_per_s = Median(s.gb_per_s);
      gain.most = Median(s.most);
      gains.push_back(std::move(gain));
    }
    std::sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) {
      return std::make_tuple(a.test, a.depth, -a.share) <
             std::make_tuple(b.test, b.depth, -b.share);
    });
    return gains;
  }

 private:
  void AddOne(Key key, const OperationTime& one, const OperationTime& two,
              double whole, const ThreadsMachine& machine) {
    const double one_call = one.seconds / one.calls;
    const double two_call = two.seconds / two.calls;
    const double bytes = two.bytes / two.calls;
    const double least =
        std::max(one_call / kThreads, bytes / machine.two_read * 1e-9) +
        machine.loop_us / kMicro;
    Samples& samples = samples_[std::move(key)];
    samples.share.push_back(two.seconds / whole);
    samples.one.push_back(one_call * kMicro);
    samples.two.push_back(two_call * kMicro);
    samples.gain.push_back(one_call / two_call);
    samples.gb_per_s.push_back(bytes / two_call * 1e-9);
    samples.most.push_back(one_call / least);
  }

  std::map<Key, Samples> samples_;
};

}  // namespace

absl::StatusOr<ThreadsBench> RunThreadsBench(
    const ThreadsBenchOptions& options) {
  std::vector<int> depths = options.depths;
  std::sort(depths.begin(), depths.end());
  const int deepest = depths.empty() ? 0 : depths.back();
  std::unique_ptr<ModelRunner> runners[2];  // of one thread, of kThreads
  for (const int i : {0, 1}) {
    auto runner =
        ModelRunner::Make(options.file, i == 0 ? 1 : kThreads,
                          deepest + std::max(options.prompt, options.generate));
    if (!runner.ok()) return runner.status();
    runners[i] = *std::move(runner);
  }
  MachineProbe probe;
  Rounds rounds;
  std::vector<double> one_read, two_read, loop_us;
  int filled = 0;
  for (const int depth : depths) {
    for (const auto& runner : runners) {
      const auto fill = runner->Forward(filled, depth - filled, kStepRows);
      if (!fill.ok()) return fill.status();
      runner->SaveSections();
    }
    filled = depth;
    for (int round = 0; round < options.rounds; ++round) {
      for (const auto& [test, count, step] :
           {std::tuple{"prefill", options.prompt, kStepRows},
            std::tuple{"decode", options.generate, 1}}) {
        const ThreadsMachine machine = probe.Measure();
        one_read.push_back(machine.one_read);
        two_read.push_back(machine.two_read);
        loop_us.push_back(machine.loop_us);
        ModelSpeed speeds[2];
        for (const int i : {0, 1}) {
          runners[i]->RestoreSections();
          auto speed = runners[i]->Measure(test, depth, count, step);
          if (!speed.ok()) return speed.status();
          runners[i]->RestoreSections();
          speeds[i] = *std::move(speed);
        }
        rounds.Add(speeds[0], speeds[1], machine);
      }
    }
  }
  return ThreadsBench{
      runners[1]->model().info().name,
      runners[1]->backend().name + " " + runners[1]->backend().target,
      {Median(one_read), Median(two_read), Median(loop_us)},
      rounds.Medians()};
}

}  // namespace holdfast::bench
