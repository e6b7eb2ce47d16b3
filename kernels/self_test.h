// What a backend computes from fixed numbers: every operation, every weight
// type, few rows and many. Cached bytes stay valid as long as these results do.
#ifndef HOLDFAST_KERNELS_SELF_TEST_H_
#define HOLDFAST_KERNELS_SELF_TEST_H_

#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::kernels {

inline constexpr std::array kSelfTestTypes = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBF16,
    WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
    WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
    WeightType::kQ5_K, WeightType::kQ6_K, WeightType::kF8E4M3};

// Gives each operation's results to `take`, in a fixed order; the caller
// digests them. Equal bytes on every target and thread count of a backend whose
// arithmetic is what its revision says. Takes milliseconds and a few MiB.
//
// Calls Prepare with limits of its own: to be run before the backend is
// prepared for a model.
Status RunSelfTest(Backend& backend,
                   const std::function<void(std::span<const std::byte>)>& take);

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_SELF_TEST_H_
