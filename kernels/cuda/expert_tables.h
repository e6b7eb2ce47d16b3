// The experts' weights as kernels index them, made at a layer's first use.
#ifndef HOLDFAST_KERNELS_CUDA_EXPERT_TABLES_H_
#define HOLDFAST_KERNELS_CUDA_EXPERT_TABLES_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/weights.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// One tensor of every expert: views[e] in device memory.
struct ExpertPart {
  const WeightView* views = nullptr;
  WeightType type = WeightType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t first_column = 0;
};

struct ExpertLayer {
  std::vector<ExpertPart> gate_up;
  std::vector<ExpertPart> down;
};

class ExpertTables {
 public:
  // The experts of a layer must have the same parts and types. The result lives
  // as long as this; the matrices must.
  StatusOr<const ExpertLayer*> Get(std::span<const ExpertWeights> experts);

  // Of the device.
  std::size_t bytes() const;

 private:
  StatusOr<std::vector<ExpertPart>> Upload(
      std::span<const ExpertWeights> experts,
      const Matrix* ExpertWeights::*member);

  std::map<std::uint64_t, ExpertLayer> layers_;  // by the first gate_up's id
  std::vector<DeviceMemory> memory_;
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_EXPERT_TABLES_H_
