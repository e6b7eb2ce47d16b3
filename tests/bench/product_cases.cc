#include <optional>
#include <utility>

#include "kernels/host/testing.h"
#include "kernels/reference/reference.h"
#include "tests/bench/blas.h"
#include "tests/bench/cases.h"
#include "tests/bench/plain_read.h"

namespace holdfast::bench {
namespace {

using kernels::Matrix;
using kernels::WeightType;
using kernels::testing::OwnedTensor;
using kernels::testing::Random;

constexpr int kManyRows = 1024;
constexpr double kGiga = 1e-9;

struct Shape {
  const char* name;
  int outputs;
  int cols;
};
constexpr Shape kDemoShapes[] = {{"qkv", kJoined, kHidden},
                                 {"output", kHidden, kHidden},
                                 {"gate+up", 2 * kInner, kHidden},
                                 {"down", kHidden, kInner}};
constexpr Shape kLarge = {"large", 4096, 4096};

std::string Title(const char* rows, WeightType type, const Shape& shape) {
  return std::string("product/") + rows + "/" + kernels::WeightTypeName(type) +
         "/" + shape.name + " " + std::to_string(shape.outputs) + "x" +
         std::to_string(shape.cols);
}

// Many rows, against sgemm over the same weights widened.
class ManyRows final : public Case {
 public:
  ManyRows(Machine& machine, WeightType type, const Shape& shape,
           const std::string& name)
      : machine_(machine), shape_(shape) {
    Random random(1);
    const OwnedTensor w = RandomTensor(random, type, shape.outputs, shape.cols);
    for (const int threads : {1, kThreads}) {
      weights_[threads == 1] =
          OrDie(machine.backend(threads).PackMatrix({&w.tensor, 1}), "pack");
    }
    x_ = random.Floats(std::size_t(kManyRows) * shape.cols);
    y_.resize(std::size_t(kManyRows) * shape.outputs);
    if (!HaveBlas()) return;
    const auto widened = kernels::reference::Widen(w.tensor);
    widened_.assign(widened.begin(), widened.end());
    Kernel(kThreads);
    const auto result = y_;
    Floor(kThreads);
    CheckSame(result, y_, name);
  }

  void Kernel(int threads) override {
    machine_.backend(threads).MatMul(*weights_[threads == 1], x_.data(),
                                     kManyRows, nullptr, y_.data());
  }
  void Floor(int threads) override {
    BlasProduct(x_.data(), widened_.data(), kManyRows, shape_.outputs,
                shape_.cols, threads, y_.data());
  }

 private:
  Machine& machine_;
  const Shape shape_;
  std::unique_ptr<Matrix> weights_[2];
  std::vector<float> x_, y_, widened_;
};

// One row over matrices one after the other, against reading their bytes.
class OneRow final : public Case {
 public:
  OneRow(Machine& machine, WeightType type, std::vector<Shape> shapes,
         int copies)
      : machine_(machine) {
    Random random(1);
    std::vector<OwnedTensor> tensors;
    for (const Shape& shape : shapes) {
      tensors.push_back(RandomTensor(random, type, shape.outputs, shape.cols));
      x_.resize(std::max(x_.size(), std::size_t(shape.cols)), 0.5f);
      y_.resize(std::max(y_.size(), std::size_t(shape.outputs)));
    }
    std::size_t bytes = 0;
    for (const int threads : {1, kThreads}) {
      bytes = 0;
      for (int copy = 0; copy < copies; ++copy) {
        for (const OwnedTensor& tensor : tensors) {
          auto matrix = OrDie(
              machine.backend(threads).PackMatrix({&tensor.tensor, 1}), "pack");
          bytes += matrix->bytes();
          weights_[threads == 1].push_back(std::move(matrix));
        }
      }
    }
    read_.emplace(bytes);
  }

  void Kernel(int threads) override {
    for (const auto& matrix : weights_[threads == 1]) {
      machine_.backend(threads).MatMul(*matrix, x_.data(), 1, nullptr,
                                       y_.data());
    }
  }
  void Floor(int threads) override { read_->Run(machine_.pool(threads)); }

 private:
  Machine& machine_;
  std::vector<std::unique_ptr<Matrix>> weights_[2];
  std::vector<float> x_, y_;
  std::optional<PlainRead> read_;
};

CaseSpec ManyRowsSpec(Machine& machine, WeightType type, const Shape& shape) {
  CaseSpec spec;
  spec.name = Title("1024 rows", type, shape);
  spec.floor = HaveBlas() ? "sgemm" : "";
  spec.work = kGiga * 2 * kManyRows * shape.outputs * shape.cols;
  spec.unit = "GFLOP";
  spec.make = [&machine, type, shape, name = spec.name] {
    return std::make_unique<ManyRows>(machine, type, shape, name);
  };
  return spec;
}

CaseSpec OneRowSpec(Machine& machine, WeightType type, const char* title,
                    std::vector<Shape> shapes, int copies) {
  CaseSpec spec;
  spec.name = std::string("product/1 row/") + kernels::WeightTypeName(type) +
              "/" + title;
  spec.floor = "plain read";
  spec.unit = "GB";
  for (const Shape& shape : shapes) {
    spec.work += kGiga * copies * shape.outputs *
                 static_cast<double>(WeightRowBytes(type, shape.cols));
  }
  spec.make = [&machine, type, shapes = std::move(shapes), copies] {
    return std::make_unique<OneRow>(machine, type, shapes, copies);
  };
  return spec;
}

}  // namespace

std::vector<CaseSpec> ProductCases(Machine& machine) {
  const std::vector<Shape> demo(std::begin(kDemoShapes), std::end(kDemoShapes));
  std::vector<CaseSpec> specs;
  for (const WeightType type : {WeightType::kBF16, WeightType::kQ4_1}) {
    for (const Shape& shape : demo) {
      specs.push_back(ManyRowsSpec(machine, type, shape));
    }
    specs.push_back(ManyRowsSpec(machine, type, kLarge));
  }
  for (const WeightType type : {WeightType::kBF16, WeightType::kQ4_1}) {
    specs.push_back(
        OneRowSpec(machine, type, "demo model, 30 layers", demo, kLayers));
    specs.push_back(OneRowSpec(machine, type, "4 of 4096x4096", {kLarge}, 4));
  }
  return specs;
}

}  // namespace holdfast::bench
