#include "kernels/reference/gdn.h"

#include <cmath>
#include <cstddef>

namespace holdfast::kernels::reference {
namespace {

double Silu(double x) { return x * Sigmoid(x); }

// The convolved row; the tail moves on.
Numbers Convolve(const GdnShape& shape, const GdnNumbers& weights,
                 const Numbers& projected, Numbers& tail) {
  const std::size_t channels = shape.Channels();
  for (std::size_t c = 0; c < channels; ++c) {
    tail.push_back(
        RoundToState(static_cast<float>(projected[c]), shape.state_type));
  }
  Numbers out;
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int tap = 0; tap < kConvTaps; ++tap) {
      sum += weights.conv[c * kConvTaps + tap] * tail[tap * channels + c];
    }
    out.push_back(Silu(sum));
  }
  tail.erase(tail.begin(), tail.begin() + shape.Channels());
  return out;
}

void L2Norm(double* x, int dims, double scale) {
  double squares = 1e-6;
  for (int i = 0; i < dims; ++i) squares += x[i] * x[i];
  for (int i = 0; i < dims; ++i) x[i] *= scale / std::sqrt(squares);
}

// state: [key_dim][value_dim]
void DeltaStep(const GdnShape& shape, const double* q, const double* k,
               const double* v, double beta, double decay, double* state,
               double* out) {
  for (int c = 0; c < shape.value_dim; ++c) {
    double read = 0;
    for (int i = 0; i < shape.key_dim; ++i) {
      double& s = state[i * shape.value_dim + c];
      s *= decay;
      read += k[i] * s;
    }
    const double update = beta * (v[c] - read);
    out[c] = 0;
    for (int i = 0; i < shape.key_dim; ++i) {
      double& s = state[i * shape.value_dim + c];
      s += k[i] * update;
      out[c] += q[i] * s;
    }
  }
}

}  // namespace

GdnState ZeroState(const GdnShape& shape) {
  return {
      Numbers(static_cast<std::size_t>(kConvTaps - 1) * shape.Channels()),
      Numbers(static_cast<std::size_t>(shape.key_dim) * shape.ValueWidth())};
}

Numbers GdnRow(const GdnShape& shape, const GdnNumbers& weights,
               const Numbers& projected, GdnState& state) {
  Numbers mixed = Convolve(shape, weights, projected, state.tail);
  double* q = mixed.data();
  double* k = q + shape.KeyWidth();
  const double* v = k + shape.KeyWidth();
  const double* z = projected.data() + shape.Channels();
  const double* b = z + shape.ValueWidth();
  const double* a = b + shape.value_heads;
  for (int h = 0; h < shape.key_heads; ++h) {
    L2Norm(q + h * shape.key_dim, shape.key_dim,
           1 / std::sqrt(static_cast<double>(shape.key_dim)));
    L2Norm(k + h * shape.key_dim, shape.key_dim, 1);
  }
  const int group = shape.value_heads / shape.key_heads;
  Numbers out;
  for (int h = 0; h < shape.value_heads; ++h) {
    const int key =
        shape.heads == GdnHeads::kTiled ? h % shape.key_heads : h / group;
    const double decay =
        std::exp(weights.decay_rate[h] * Softplus(a[h] + weights.dt_bias[h]));
    Numbers head(shape.value_dim);
    DeltaStep(shape, q + key * shape.key_dim, k + key * shape.key_dim,
              v + h * shape.value_dim, Sigmoid(b[h]), decay,
              &state.state[static_cast<std::size_t>(h) * shape.key_dim *
                           shape.value_dim],
              head.data());
    head = RmsNorm(head, weights.norm, weights.norm_eps, shape.value_dim);
    for (int i = 0; i < shape.value_dim; ++i) {
      out.push_back(head[i] * Silu(z[h * shape.value_dim + i]));
    }
  }
  return out;
}

}  // namespace holdfast::kernels::reference
