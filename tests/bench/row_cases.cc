#include <utility>

#include "kernels/host/testing.h"
#include "tests/bench/cases.h"
#include "tests/bench/plain_read.h"

namespace holdfast::bench {
namespace {

using kernels::Backend;
using kernels::KvShape;
using kernels::RowSpan;
using kernels::StateType;
using kernels::testing::Random;

constexpr int kRows = 512;
constexpr int kPosition = 256;

// What the operations work on: all of them share it.
struct Inputs {
  explicit Inputs(Machine& machine) : pool(shape, kPosition + kRows, 0) {
    Random random(5);
    x = random.Floats(kRows * 2 * kInner);
    y = random.Floats(kRows * kInner);
    weight = random.Floats(kHidden);
    const auto frequencies = random.Floats(kHeadDim / 2);
    const auto w =
        RandomTensor(random, kernels::WeightType::kQ8_0, 8192, kHidden);
    for (const int i : {0, 1}) {
      Backend& backend = machine.backend(i == 0 ? kThreads : 1);
      table[i] = OrDie(backend.MakeRopeTable(frequencies, 2048), "rope table");
      embedding[i] = OrDie(backend.PackMatrix({&w.tensor, 1}), "pack");
    }
    for (int i = 0; i < kRows; ++i) ids.push_back(i * 37 % 8192);
  }

  KvShape shape = {1, kKvHeads, kHeadDim, StateType::kBF16};
  kernels::testing::TestPool pool;
  std::vector<float> x, y, weight;
  std::unique_ptr<kernels::RopeTable> table[2];
  std::unique_ptr<kernels::Matrix> embedding[2];
  std::vector<std::int32_t> ids;
};

using Body = void (*)(Inputs& in, Backend& backend, int threads);

class RowCase final : public Case {
 public:
  RowCase(Machine& machine, Body body, std::size_t bytes)
      : machine_(machine), body_(body), in_(machine), read_(bytes) {}
  void Kernel(int threads) override {
    body_(in_, machine_.backend(threads), threads);
  }
  void Floor(int threads) override { read_.Run(machine_.pool(threads)); }

 private:
  Machine& machine_;
  const Body body_;
  Inputs in_;
  PlainRead read_;
};

struct Operation {
  const char* name;
  int floats;  // read and written, for a row
  Body body;
};

constexpr Operation kOperations[] = {
    {"RmsNorm", 2 * kHidden,
     [](Inputs& in, Backend& backend, int) {
       backend.RmsNorm(in.x.data(), in.weight.data(), 1e-5f, kRows, kHidden,
                       in.y.data());
     }},
    {"HeadNorm", 2 * (kHeads + kKvHeads) * kHeadDim,
     [](Inputs& in, Backend& backend, int) {
       backend.HeadNorm(in.x.data(), in.weight.data(), 1e-6f, kRows, kJoined,
                        kHeads + kKvHeads, kHeadDim);
     }},
    {"Add", 3 * kHidden,
     [](Inputs& in, Backend& backend, int) {
       backend.Add(in.y.data(), in.x.data(), kRows, kHidden);
     }},
    {"SiluMul", 3 * kInner,
     [](Inputs& in, Backend& backend, int) {
       backend.SiluMul(in.x.data(), kRows, kInner, in.y.data());
     }},
    {"Rope", 2 * (kHeads + kKvHeads) * kHeadDim,
     [](Inputs& in, Backend& backend, int threads) {
       const RowSpan span = {in.pool.blocks(), 0, kPosition, kRows};
       backend.Rope(in.x.data(), kJoined, kHeads + kKvHeads, kHeadDim,
                    *in.table[threads == 1], {&span, 1});
     }},
    {"StoreKv", 3 * kKvHeads* kHeadDim,
     [](Inputs& in, Backend& backend, int) {
       const RowSpan span = {in.pool.blocks(), 0, kPosition, kRows};
       backend.StoreKv(in.shape, 0, in.x.data(),
                       in.x.data() + kKvHeads * kHeadDim, kJoined, {&span, 1});
     }},
    {"EmbedRows Q8_0", kHidden + kHidden / 4,
     [](Inputs& in, Backend& backend, int threads) {
       backend.EmbedRows(*in.embedding[threads == 1], in.ids, in.y.data());
     }},
};

}  // namespace

std::vector<CaseSpec> RowCases(Machine& machine) {
  std::vector<CaseSpec> specs;
  for (const Operation& operation : kOperations) {
    const std::size_t bytes = sizeof(float) * operation.floats * kRows;
    CaseSpec spec;
    spec.name = std::string("rows/512 rows/") + operation.name;
    spec.floor = "plain read";
    spec.work = 1e-9 * static_cast<double>(bytes);
    spec.unit = "GB";
    spec.make = [&machine, body = operation.body, bytes] {
      return std::make_unique<RowCase>(machine, body, bytes);
    };
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace holdfast::bench
