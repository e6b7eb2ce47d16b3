// A gated delta net layer with random weights and rows, for tests.
#ifndef HOLDFAST_KERNELS_HOST_GDN_TESTING_H_
#define HOLDFAST_KERNELS_HOST_GDN_TESTING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/testing.h"
#include "kernels/reference/gdn.h"

namespace holdfast::kernels::testing {

struct GdnLayer {
  GdnLayer(const GdnShape& shape, std::uint64_t seed);

  // Of the float weights; valid while this lives.
  GdnWeights weights() const;
  reference::GdnNumbers numbers() const;
  // Projected rows. Eight of sixteen have small inputs of the convolution, so
  // that what the norms add shows; gates reach far.
  std::vector<float> Rows(int rows);

  GdnShape shape;
  Random random;
  std::vector<float> conv;  // [tap][channel]
  std::vector<float> decay_rate;
  std::vector<float> dt_bias;
  std::vector<float> norm;
};

// A sequence's sections: 64 bytes of something else, then tail and state.
class GdnSections {
 public:
  GdnSections(const GdnShape& shape, std::uint32_t fill);

  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }
  const GdnPlace& place() const { return place_; }
  // In the reference's order.
  reference::GdnState state() const;
  bool operator==(const GdnSections& other) const {
    return memory_ == other.memory_;
  }

 private:
  GdnShape shape_;
  GdnPlace place_;
  std::vector<std::uint32_t> memory_;
};

}  // namespace holdfast::kernels::testing

#endif  // HOLDFAST_KERNELS_HOST_GDN_TESTING_H_
