#include <utility>

#include "tests/bench/cases.h"
#include "tests/bench/plain_fma.h"
#include "tests/bench/plain_read.h"

namespace holdfast::bench {
namespace {

constexpr double kGiga = 1e-9;
constexpr double kMega = 1e-6;

// What the machine itself does, without a floor below it. What its two threads
// reach over one is as much as a kernel's can.
class Own : public Case {
 public:
  void Floor(int) override {}
};

class Fma final : public Own {
 public:
  explicit Fma(Machine& machine) : machine_(machine) {}
  // The same work on any number of threads.
  void Kernel(int threads) override {
    for (int i = 0; i < kThreads; i += threads) {
      RunPlainFma(machine_.pool(threads));
    }
  }

 private:
  Machine& machine_;
};

class Reads final : public Own {
 public:
  Reads(Machine& machine, std::size_t bytes)
      : machine_(machine), read_(bytes) {}
  void Kernel(int threads) override { read_.Run(machine_.pool(threads)); }

 private:
  Machine& machine_;
  PlainRead read_;
};

// What a kernel's parallel loop costs beside its work.
class Loops final : public Own {
 public:
  explicit Loops(Machine& machine) : machine_(machine) {}
  void Kernel(int threads) override {
    for (int i = 0; i < kLoops; ++i) {
      machine_.pool(threads).For(2 * kThreads, [](int, int) {});
    }
  }
  static constexpr int kLoops = 1000;

 private:
  Machine& machine_;
};

template <typename Kind, typename... Arguments>
CaseSpec Spec(Machine& machine, std::string name, double work, const char* unit,
              Arguments... arguments) {
  CaseSpec spec;
  spec.name = "machine/" + std::move(name);
  spec.work = work;
  spec.unit = unit;
  spec.make = [&machine, arguments...] {
    return std::make_unique<Kind>(machine, arguments...);
  };
  return spec;
}

}  // namespace

std::vector<CaseSpec> MachineCases(Machine& machine) {
  std::vector<CaseSpec> specs = {
      Spec<Fma>(machine, "fused multiply-adds",
                kGiga * kThreads * PlainFmaWork(), "GFLOP"),
      Spec<Loops>(machine, "empty parallel loops", kMega * Loops::kLoops,
                  "Mloop")};
  // In the second-level caches, the third-level one, around its end, in memory.
  for (const std::size_t mib : {1, 16, 48, 128, 512}) {
    const std::size_t bytes = mib << 20;
    specs.push_back(
        Spec<Reads>(machine, "plain read, " + std::to_string(mib) + " MiB",
                    kGiga * static_cast<double>(bytes), "GB", bytes));
  }
  return specs;
}

}  // namespace holdfast::bench
