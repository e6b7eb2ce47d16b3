// A gated delta net layer in double precision, one token after the other.
#ifndef HOLDFAST_KERNELS_REFERENCE_GDN_H_
#define HOLDFAST_KERNELS_REFERENCE_GDN_H_

#include "kernels/backend.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels::reference {

// As the model's files have them.
struct GdnNumbers {
  Numbers conv;        // [channel][tap]
  Numbers decay_rate;  // of each value head
  Numbers dt_bias;
  Numbers norm;
  double norm_eps = 0;
};

struct GdnState {
  Numbers tail;   // [kConvTaps - 1][channel], oldest first
  Numbers state;  // [value head][key_dim][value_dim]
};
GdnState ZeroState(const GdnShape& shape);

// One projected row [q | k | v | z | b | a]: the output, and the next state.
Numbers GdnRow(const GdnShape& shape, const GdnNumbers& weights,
               const Numbers& projected, GdnState& state);

}  // namespace holdfast::kernels::reference

#endif  // HOLDFAST_KERNELS_REFERENCE_GDN_H_
