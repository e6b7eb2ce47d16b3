// A plain double-precision twin of each operation of kernels/backend.h, for
// tests: written for reading, from the formats and formulas alone.
#ifndef HOLDFAST_KERNELS_REFERENCE_REFERENCE_H_
#define HOLDFAST_KERNELS_REFERENCE_REFERENCE_H_

#include <span>
#include <vector>

#include "kernels/backend.h"

namespace holdfast::kernels::reference {

using Numbers = std::vector<double>;

Numbers FromFloats(std::span<const float> values);

// A tensor's numbers, rows in its row order.
Numbers Widen(const WeightTensor& tensor);

// The value as the pool keeps it.
double RoundToState(float value, StateType type);

// y[r][n] = sum of x[r][k] w[n][k], plus bias[n] when there is a bias.
Numbers MatMul(const Numbers& w, int cols, const Numbers& x,
               const Numbers& bias);

// Every run of `cols` numbers of x.
Numbers RmsNorm(const Numbers& x, const Numbers& weight, double eps, int cols);

// One row of `heads` heads at `position`.
void Rope(double* row, int heads, int head_dim,
          std::span<const float> inverse_frequencies, int position);

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
};
// One query row over `keys` rows of k and v ([key][kv head][dim]).
Numbers Attention(const AttentionShape& shape, const double* q,
                  const Numbers& k, const Numbers& v, int keys, double scale);

// silu(gate) * up, element by element.
double SiluMul(double gate, double up);

double Sigmoid(double x);

// log(1 + e^x)
double Softplus(double x);

// An expert's matrices, [2 ffn][hidden] and [hidden][ffn].
struct Expert {
  Numbers gate_up;
  Numbers down;
};
// One row through the experts of its top_k largest logits.
Numbers MoeExperts(const MoeShape& shape, const std::vector<Expert>& experts,
                   const Numbers& logits, const Numbers& x);

}  // namespace holdfast::kernels::reference

#endif  // HOLDFAST_KERNELS_REFERENCE_REFERENCE_H_
