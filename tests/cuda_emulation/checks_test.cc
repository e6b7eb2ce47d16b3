// The CUDA kernels, run by the emulation: against their twins, and with equal
// bits in whatever order blocks, warps and lanes run.
#include "tests/gpu/checks.h"

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulation/execution.h"
#include "tests/cuda_emulation/fake_runtime.h"

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
  const auto digest = [this](Order order, std::uint64_t seed) {
    emulation::SetOrder(order, seed);
    const auto backend = MakeBackend();
    Checker checker(*backend);
    GetParam().run(checker);
    return checker.digest();
  };
  const std::uint64_t ascending = digest(Order::kAscending, 0);
  EXPECT_EQ(ascending, digest(Order::kDescending, 0));
  EXPECT_EQ(ascending, digest(Order::kShuffled, 1));
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
