// What tests of the engine are run on: models with and without recurrent state,
// and backends of both exactness modes.
#ifndef HOLDFAST_ENGINE_TESTING_ENGINE_VARIANTS_H_
#define HOLDFAST_ENGINE_TESTING_ENGINE_VARIANTS_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "engine/testing/fake_model.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace holdfast::engine::testing {

using Ids = std::vector<std::int32_t>;

inline auto ModelKinds() {
  return ::testing::Values(FakeModel::Kind::kAttentionOnly,
                           FakeModel::Kind::kRecurrent);
}
inline std::string ModelKindName(
    const ::testing::TestParamInfo<FakeModel::Kind>& info) {
  return info.param == FakeModel::Kind::kRecurrent ? "Recurrent"
                                                   : "AttentionOnly";
}

using EngineVariant = std::tuple<FakeModel::Kind, kernels::Exactness>;

inline auto EngineVariants() {
  return ::testing::Combine(ModelKinds(),
                            ::testing::Values(kernels::Exactness::kRowInvariant,
                                              kernels::Exactness::kGrid));
}
inline std::string EngineVariantName(
    const ::testing::TestParamInfo<EngineVariant>& info) {
  const std::string kind =
      std::get<0>(info.param) == FakeModel::Kind::kRecurrent ? "Recurrent"
                                                             : "AttentionOnly";
  const bool grid = std::get<1>(info.param) == kernels::Exactness::kGrid;
  return kind + (grid ? "Grid" : "");
}

class EngineVariantTest : public ::testing::TestWithParam<EngineVariant> {
 protected:
  EngineVariantTest() { model_.launch_matters = grid(); }

  static bool recurrent() {
    return std::get<0>(GetParam()) == FakeModel::Kind::kRecurrent;
  }
  static bool grid() {
    return std::get<1>(GetParam()) == kernels::Exactness::kGrid;
  }

  FakeModel model_{std::get<0>(GetParam())};
  FakeBackend backend_{std::get<1>(GetParam())};
};

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_ENGINE_VARIANTS_H_
