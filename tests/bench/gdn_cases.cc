#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/host/gdn.h"
#include "kernels/host/gdn_testing.h"
#include "kernels/host/testing.h"
#include "tests/bench/cases.h"
#include "tests/bench/plain_scale.h"

namespace holdfast::bench {
namespace {

using kernels::Backend;
using kernels::GdnCall;
using kernels::GdnPlace;
using kernels::GdnShape;
using kernels::HostMemory;
using kernels::Matrix;
using kernels::RowSpan;
using kernels::WeightType;
using kernels::testing::GdnLayer;
using kernels::testing::Random;

constexpr double kGiga = 1e-9;
constexpr int kPrefillRows = 1024;
// As the backend takes them.
constexpr int kPassRows = 256;
// Of the 0.8B model.
constexpr int kWidth = 1024;
constexpr int kFfn = 3584;

HostMemory Floats(std::size_t count) {
  return OrDie(HostMemory::Make(count * sizeof(float), "rows"), "memory");
}

HostMemory Copy(const std::vector<float>& values) {
  HostMemory memory = Floats(values.size());
  std::copy(values.begin(), values.end(), memory.floats());
  return memory;
}

// One layer's weights and projected rows. Nothing decays: what no later row
// renews would become subnormal in many runs over the same rows.
struct Inputs {
  explicit Inputs(int rows)
      : layer(kGdn, 1), projected(Copy(layer.Rows(rows))) {
    std::fill(layer.decay_rate.begin(), layer.decay_rate.end(), 0.0f);
  }
  GdnLayer layer;
  HostMemory projected;
};

// The recurrence of `rows` rows of one sequence, alone. Outputs replace the
// values; they stay what they are where keys and queries are one vector of
// length 1 and the state takes all of a value (beta 1, no decay), so that runs
// can follow each other.
class Recurrence {
 public:
  Recurrence(Machine& machine, int rows)
      : rows_(rows),
        keys_(std::size_t(rows) * kGdn.KeyWidth(),
              1.0f / std::sqrt(float(kGdn.key_dim))),
        v_(Copy(Random(4).Floats(std::size_t(rows) * kGdn.ValueWidth()))),
        beta_(std::size_t(GateStride(rows)) * kGdn.value_heads, 1.0f),
        decay_(beta_.size(), 1.0f),
        gdn_{{*kernels::ChooseGdnKernels(), machine.pool(kThreads)},
             {*kernels::ChooseGdnKernels(), machine.pool(1)}} {}

  void Run(int threads, std::byte* state) {
    GdnCall call;
    call.shape = kGdn;
    const kernels::GdnPiece piece = {{nullptr, 0, 1, rows_, state}, 0};
    const kernels::GdnRows rows = {
        rows_,        keys_.data(),  keys_.data(),     v_.floats(),
        beta_.data(), decay_.data(), GateStride(rows_)};
    gdn_[threads == 1].Recur(call, {&piece, 1}, rows);
  }

 private:
  static int GateStride(int rows) { return (rows + 15) / 16 * 16; }

  const int rows_;
  std::vector<float> keys_;
  HostMemory v_;
  std::vector<float> beta_, decay_;
  kernels::HostGdn gdn_[2];
};

// A whole recurrent layer over many rows, bf16 weights.
class Layer {
 public:
  explicit Layer(Machine& machine)
      : machine_(machine),
        inputs_(kPrefillRows),
        sections_(Floats((kGdn.StateBytes() + kGdn.TailBytes()) / 4)),
        x_(Copy(Random(6).Floats(std::size_t(kPrefillRows) * kWidth))),
        narrow_(Floats(std::size_t(kPrefillRows) * kGdn.ValueWidth())),
        wide_(Floats(std::size_t(kPrefillRows) *
                     std::max(kGdn.ProjectedWidth(), 2 * kFfn))),
        middle_(Floats(std::size_t(kPrefillRows) * kFfn)),
        norm_(Random(7).Floats(kWidth)) {
    const std::pair<int, int> shapes[kMatrices] = {
        {kGdn.ProjectedWidth(), kWidth},
        {kWidth, kGdn.ValueWidth()},
        {2 * kFfn, kWidth},
        {kWidth, kFfn}};
    Random random(5);
    for (int m = 0; m < kMatrices; ++m) {
      const auto w = RandomTensor(random, WeightType::kBF16, shapes[m].first,
                                  shapes[m].second);
      for (const int threads : {1, kThreads}) {
        weights_[threads == 1][m] =
            OrDie(machine.backend(threads).PackMatrix({&w.tensor, 1}), "pack");
      }
    }
  }

  // The gated delta net over rows of its own.
  void Mix(int threads) {
    const RowSpan span = {nullptr, 0, 1, kPrefillRows, sections_.data()};
    machine_.backend(threads).GatedDeltaNet(
        kGdn, inputs_.layer.weights(), {kGdn.StateBytes(), 0},
        inputs_.projected.floats(), kGdn.ProjectedWidth(), {&span, 1},
        narrow_.floats());
  }

  void Run(int threads) {
    Backend& backend = machine_.backend(threads);
    const auto& w = weights_[threads == 1];
    float* x = x_.floats();
    float* narrow = narrow_.floats();
    float* wide = wide_.floats();
    float* middle = middle_.floats();
    const auto norm = [&] {
      backend.RmsNorm(x, norm_.data(), 1e-6f, kPrefillRows, kWidth, narrow);
    };
    norm();
    backend.MatMul(*w[0], narrow, kPrefillRows, nullptr, wide);
    Mix(threads);
    backend.MatMul(*w[1], narrow, kPrefillRows, nullptr, middle);
    backend.Add(middle, x, kPrefillRows, kWidth);
    norm();
    backend.MatMul(*w[2], narrow, kPrefillRows, nullptr, wide);
    backend.SiluMul(wide, kPrefillRows, kFfn, middle);
    backend.MatMul(*w[3], middle, kPrefillRows, nullptr, narrow);
    backend.Add(narrow, x, kPrefillRows, kWidth);
  }

 private:
  static constexpr int kMatrices = 4;
  Machine& machine_;
  Inputs inputs_;
  HostMemory sections_, x_, narrow_, wide_, middle_;
  std::vector<float> norm_;
  std::unique_ptr<Matrix> weights_[2][kMatrices];
};

// A part of a layer's prefill against all of it: the part's share is the
// ratio's inverse.
class PrefillRecurrence final : public Case {
 public:
  explicit PrefillRecurrence(Machine& machine)
      : recurrence_(machine, kPassRows),
        layer_(machine),
        state_(Floats(kGdn.StateBytes() / 4)) {}
  void Kernel(int threads) override {
    for (int row = 0; row < kPrefillRows; row += kPassRows) {
      recurrence_.Run(threads, state_.data());
    }
  }
  void Floor(int threads) override { layer_.Run(threads); }

 private:
  Recurrence recurrence_;
  Layer layer_;
  HostMemory state_;
};

class PrefillWhole final : public Case {
 public:
  explicit PrefillWhole(Machine& machine) : layer_(machine) {}
  void Kernel(int threads) override { layer_.Mix(threads); }
  void Floor(int threads) override { layer_.Run(threads); }

 private:
  Layer layer_;
};

// One row through every layer against scaling the same state in place.
class DecodeRecurrence final : public Case {
 public:
  DecodeRecurrence(Machine& machine, int layers)
      : machine_(machine),
        layers_(layers),
        recurrence_(machine, 1),
        states_(Floats(layers * kGdn.StateBytes() / 4)),
        scale_(layers * kGdn.StateBytes()) {}
  void Kernel(int threads) override {
    for (int l = 0; l < layers_; ++l) {
      recurrence_.Run(threads, states_.data() + l * kGdn.StateBytes());
    }
  }
  void Floor(int threads) override { scale_.Run(machine_.pool(threads)); }

 private:
  Machine& machine_;
  const int layers_;
  Recurrence recurrence_;
  HostMemory states_;
  PlainScale scale_;
};

class DecodeWhole final : public Case {
 public:
  DecodeWhole(Machine& machine, int layers)
      : machine_(machine),
        layers_(layers),
        inputs_(1),
        sections_(Floats(layers * SectionBytes() / 4)),
        out_(kGdn.ValueWidth()),
        scale_(layers * kGdn.StateBytes()) {}
  void Kernel(int threads) override {
    for (int l = 0; l < layers_; ++l) {
      const RowSpan span = {nullptr, 0, 1, 1,
                            sections_.data() + l * SectionBytes()};
      machine_.backend(threads).GatedDeltaNet(
          kGdn, inputs_.layer.weights(), {kGdn.StateBytes(), 0},
          inputs_.projected.floats(), kGdn.ProjectedWidth(), {&span, 1},
          out_.data());
    }
  }
  void Floor(int threads) override { scale_.Run(machine_.pool(threads)); }

 private:
  static std::size_t SectionBytes() {
    return kGdn.StateBytes() + kGdn.TailBytes();
  }
  Machine& machine_;
  const int layers_;
  Inputs inputs_;
  HostMemory sections_;
  std::vector<float> out_;
  PlainScale scale_;
};

template <typename Kind, typename... Arguments>
CaseSpec Spec(Machine& machine, std::string name, const char* floor,
              double work, const char* unit, Arguments... arguments) {
  CaseSpec spec;
  spec.name = "gdn/" + std::move(name);
  spec.floor = floor;
  spec.work = kGiga * work;
  spec.unit = unit;
  spec.make = [&machine, arguments...] {
    return std::make_unique<Kind>(machine, arguments...);
  };
  return spec;
}

}  // namespace

std::vector<CaseSpec> GdnCases(Machine& machine) {
  constexpr const char* kLayer = "0.8B layer";
  constexpr const char* kScale = "plain scale";
  const double flops = 7.0 * kGdn.key_dim * kGdn.ValueWidth() * kPrefillRows;
  std::vector<CaseSpec> specs = {
      Spec<PrefillRecurrence>(machine, "prefill 1024 rows/recurrence", kLayer,
                              flops, "GFLOP"),
      Spec<PrefillWhole>(machine, "prefill 1024 rows/whole mixer", kLayer,
                         flops, "GFLOP")};
  // The model's state, and more than any cache holds.
  for (const int layers : {18, 200}) {
    const std::string decode = "decode, " + std::to_string(layers) + " layers/";
    const double bytes = 2.0 * layers * static_cast<double>(kGdn.StateBytes());
    specs.push_back(Spec<DecodeRecurrence>(machine, decode + "recurrence",
                                           kScale, bytes, "GB", layers));
    specs.push_back(Spec<DecodeWhole>(machine, decode + "whole mixer", kScale,
                                      bytes, "GB", layers));
  }
  return specs;
}

}  // namespace holdfast::bench
