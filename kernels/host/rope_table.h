#ifndef HOLDFAST_KERNELS_HOST_ROPE_TABLE_H_
#define HOLDFAST_KERNELS_HOST_ROPE_TABLE_H_

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/host/memory.h"
#include "kernels/status.h"

namespace holdfast::kernels {

// For each position rotary_dims / 2 cosines, then as many sines.
class HostRopeTable final : public RopeTable {
 public:
  static StatusOr<std::unique_ptr<HostRopeTable>> Make(
      std::span<const float> inverse_frequencies, int max_positions);

  const float* cos(int position) const {
    return memory_.floats() +
           static_cast<std::size_t>(position) * rotary_dims();
  }
  const float* sin(int position) const {
    return cos(position) + rotary_dims() / 2;
  }

 private:
  HostMemory memory_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_ROPE_TABLE_H_
