// The CUDA kernels, run by the emulation: against their twins, and with equal
// bits in whatever order blocks, warps and lanes run.
#include "tests/gpu/checks.h"

#include <gtest/gtest.h>

#include <span>

#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulation/execution.h"
#include "tests/cuda_emulation/fake_runtime.h"
#include "tests/cuda_emulation/orders.h"

namespace holdfast::gpu_check {
namespace {

using emulation::Order;

std::unique_ptr<kernels::CudaBackend> MakeBackend() {
  emulation::ResetFakeRuntime({});
  auto backend = kernels::MakeCudaBackend({});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return *std::move(backend);
}

struct Part {
  const char* name;
  void (*run)(Checker&);
};

class ChecksTest : public ::testing::TestWithParam<Part> {
 protected:
  void TearDown() override { emulation::SetOrder(Order::kAscending); }
};

TEST_P(ChecksTest, EqualsTwin) {
  const auto backend = MakeBackend();
  Checker checker(*backend);
  GetParam().run(checker);
  EXPECT_FALSE(checker.results().empty());
  for (const CheckResult& result : checker.results()) {
    EXPECT_TRUE(result.ok()) << result.name << ": " << result.error << " of "
                             << result.limit << " " << result.problem;
  }
}

// A race shows as bits that depend on the order.
TEST_P(ChecksTest, EqualBitsInAnyOrder) {
  const auto digest = [](const emulation::RunOrder& run) {
    emulation::SetOrder(run.order, run.seed);
    const auto backend = MakeBackend();
    Checker checker(*backend);
    GetParam().run(checker);
    return checker.digest();
  };
  const std::uint64_t first = digest(emulation::kRunOrders[0]);
  for (const auto& run : std::span(emulation::kRunOrders).subspan(1)) {
    EXPECT_EQ(first, digest(run)) << "seed " << run.seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ChecksTest,
    ::testing::Values(Part{"Rows", CheckRows}, Part{"Products", CheckProducts},
                      Part{"Attention", CheckAttention},
                      Part{"Pool", CheckPool},
                      Part{"GatedDeltaNet", CheckGatedDeltaNet},
                      Part{"Experts", CheckExperts},
                      Part{"ContentSums", CheckContentSums},
                      Part{"Sampling", CheckSampling}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace holdfast::gpu_check
