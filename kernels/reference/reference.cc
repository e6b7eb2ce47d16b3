#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/float16.h"

namespace holdfast::kernels::reference {
namespace {

std::uint16_t Load16(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

double Nibble(const std::byte* bytes, int i) {
  const auto byte = static_cast<unsigned>(bytes[i % 16]);
  return i < 16 ? byte & 15u : byte >> 4;
}

double Half(const std::byte* p) { return F16ToFloat(Load16(p)); }

int Byte(const std::byte* p) { return static_cast<int>(*p); }

// Bit `k` of a run of bytes.
int Bit(const std::byte* p, int k) { return Byte(p + k / 8) >> k % 8 & 1; }

// Sub-block j's 6-bit scale and minimum, of Q4_K and Q5_K.
struct ScaleMinimum {
  int scale = 0;
  int minimum = 0;
};
ScaleMinimum SixBits(const std::byte* p, int j) {
  if (j < 4) return {Byte(p + j) % 64, Byte(p + j + 4) % 64};
  const int both = Byte(p + j + 4);
  return {both % 16 + Byte(p + j - 4) / 64 * 16,
          both / 16 + Byte(p + j) / 64 * 16};
}

// Number i of a block of 256.
double ElementOfK(WeightType type, const std::byte* block, int i) {
  if (type == WeightType::kQ6_K) {
    const int half = i / 128;
    const int j = i % 128;
    const int low = Byte(block + 64 * half + j % 64) >> j / 64 * 4 & 15;
    const int high = Byte(block + 128 + 32 * half + j % 32) >> j / 32 * 2 & 3;
    const auto scale = static_cast<std::int8_t>(block[192 + i / 16]);
    return (low + 16 * high - 32) * scale * Half(block + 208);
  }
  const ScaleMinimum six = SixBits(block + 4, i / 32);
  const std::byte* nibbles = block + (type == WeightType::kQ5_K ? 48 : 16);
  int q = Byte(nibbles + i / 64 * 32 + i % 32) >> i / 32 % 2 * 4 & 15;
  if (type == WeightType::kQ5_K) {
    q += 16 * (Byte(block + 16 + i % 32) >> i / 32 & 1);
  }
  return Half(block) * six.scale * q - Half(block + 2) * six.minimum;
}

// Sign, 4 bits of exponent, 3 of mantissa; no infinity.
double E4M3(std::byte byte) {
  const int bits = static_cast<int>(byte);
  const int exponent = bits >> 3 & 15;
  const double mantissa = bits & 7;
  if ((bits & 127) == 127) return NAN;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -9)
                               : std::ldexp(8 + mantissa, exponent - 10);
  return bits < 128 ? magnitude : -magnitude;
}

double Element(WeightType type, const std::byte* row, std::int64_t col) {
  const int i = static_cast<int>(col % 32);
  switch (type) {
    case WeightType::kF32: {
      float value;
      std::memcpy(&value, row + col * 4, sizeof(value));
      return value;
    }
    case WeightType::kF16:
      return F16ToFloat(Load16(row + col * 2));
    case WeightType::kBF16:
      return Bf16ToFloat(Load16(row + col * 2));
    case WeightType::kQ8_0: {
      const std::byte* block = row + col / 32 * 34;
      return static_cast<double>(static_cast<std::int8_t>(block[2 + i])) *
             F16ToFloat(Load16(block));
    }
    case WeightType::kQ4_0: {
      const std::byte* block = row + col / 32 * 18;
      return (Nibble(block + 2, i) - 8) * F16ToFloat(Load16(block));
    }
    case WeightType::kQ4_1: {
      const std::byte* block = row + col / 32 * 20;
      return Nibble(block + 4, i) * F16ToFloat(Load16(block)) +
             F16ToFloat(Load16(block + 2));
    }
    case WeightType::kQ5_0: {
      const std::byte* block = row + col / 32 * 22;
      return (Nibble(block + 6, i) + 16 * Bit(block + 2, i) - 16) * Half(block);
    }
    case WeightType::kQ5_1: {
      const std::byte* block = row + col / 32 * 24;
      return (Nibble(block + 8, i) + 16 * Bit(block + 4, i)) * Half(block) +
             Half(block + 2);
    }
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
      return ElementOfK(type, row + col / 256 * WeightRowBytes(type, 256),
                        static_cast<int>(col % 256));
    case WeightType::kF8E4M3:
      return E4M3(row[col]);
  }
  return 0;
}

}  // namespace

Numbers FromFloats(std::span<const float> values) {
  return Numbers(values.begin(), values.end());
}

Numbers Widen(const WeightTensor& tensor) {
  Numbers numbers;
  numbers.reserve(tensor.rows * tensor.cols);
  const std::size_t row_bytes = WeightRowBytes(tensor.type, tensor.cols);
  for (std::int64_t n = 0; n < tensor.rows; ++n) {
    const std::int64_t row = tensor.row_order.empty() ? n : tensor.row_order[n];
    for (std::int64_t k = 0; k < tensor.cols; ++k) {
      double value = Element(tensor.type, tensor.data + row * row_bytes, k);
      if (tensor.type == WeightType::kF8E4M3) {
        const std::int64_t across =
            (tensor.cols + tensor.scale_cols - 1) / tensor.scale_cols;
        value *= tensor.scales[row / tensor.scale_rows * across +
                               k / tensor.scale_cols];
      }
      numbers.push_back(value);
    }
  }
  return numbers;
}

double RoundToState(float value, StateType type) {
  return type == StateType::kBF16 ? Bf16ToFloat(FloatToBf16(value)) : value;
}

Numbers MatMul(const Numbers& w, int cols, const Numbers& x,
               const Numbers& bias) {
  Numbers y;
  for (std::size_t r = 0; r < x.size() / cols; ++r) {
    for (std::size_t n = 0; n < w.size() / cols; ++n) {
      double sum = bias.empty() ? 0 : bias[n];
      for (int k = 0; k < cols; ++k) sum += x[r * cols + k] * w[n * cols + k];
      y.push_back(sum);
    }
  }
  return y;
}

Numbers RmsNorm(const Numbers& x, const Numbers& weight, double eps, int cols) {
  Numbers out;
  for (std::size_t r = 0; r < x.size() / cols; ++r) {
    const double* row = &x[r * cols];
    double squares = 0;
    for (int k = 0; k < cols; ++k) squares += row[k] * row[k];
    const double scale = 1 / std::sqrt(squares / cols + eps);
    for (int k = 0; k < cols; ++k) out.push_back(row[k] * scale * weight[k]);
  }
  return out;
}

void Rope(double* row, int heads, int head_dim,
          std::span<const float> inverse_frequencies, int position) {
  const std::size_t half = inverse_frequencies.size();
  for (int h = 0; h < heads; ++h) {
    double* head = row + h * head_dim;
    for (std::size_t i = 0; i < half; ++i) {
      // The angle is defined as a product of floats.
      const float angle = static_cast<float>(position) * inverse_frequencies[i];
      const double c = std::cos(static_cast<double>(angle));
      const double s = std::sin(static_cast<double>(angle));
      const double a = head[i];
      const double b = head[half + i];
      head[i] = a * c - b * s;
      head[half + i] = b * c + a * s;
    }
  }
}

Numbers Attention(const AttentionShape& shape, const double* q,
                  const Numbers& k, const Numbers& v, int keys, double scale) {
  const int dims = shape.head_dim;
  const int group = shape.heads / shape.kv_heads;
  Numbers out(static_cast<std::size_t>(shape.heads) * dims);
  for (int h = 0; h < shape.heads; ++h) {
    const auto at = [&](int key) {
      return (static_cast<std::size_t>(key) * shape.kv_heads + h / group) *
             dims;
    };
    Numbers weights(keys);
    for (int j = 0; j < keys; ++j) {
      for (int d = 0; d < dims; ++d) {
        weights[j] += q[h * dims + d] * scale * k[at(j) + d];
      }
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) {
      weight = std::exp(weight - largest);
      sum += weight;
    }
    for (int j = 0; j < keys; ++j) {
      for (int d = 0; d < dims; ++d) {
        out[h * dims + d] += weights[j] / sum * v[at(j) + d];
      }
    }
  }
  return out;
}

double SiluMul(double gate, double up) {
  return gate / (1 + std::exp(-gate)) * up;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

Numbers MoeExperts(const MoeShape& shape, const std::vector<Expert>& experts,
                   const Numbers& logits, const Numbers& x) {
  std::vector<int> ids(shape.experts);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return logits[a] > logits[b]; });
  double all = 0;
  for (const int id : ids) all += std::exp(logits[id]);
  double chosen = 0;
  for (int j = 0; j < shape.top_k; ++j) chosen += std::exp(logits[ids[j]]);
  Numbers out(shape.hidden);
  for (int j = 0; j < shape.top_k; ++j) {
    const Expert& expert = experts[ids[j]];
    const Numbers wide = MatMul(expert.gate_up, shape.hidden, x, {});
    Numbers middle;
    for (int i = 0; i < shape.ffn; ++i) {
      middle.push_back(SiluMul(wide[i], wide[shape.ffn + i]));
    }
    const Numbers y = MatMul(expert.down, shape.ffn, middle, {});
    const double weight =
        std::exp(logits[ids[j]]) / (shape.normalise ? chosen : all);
    for (int i = 0; i < shape.hidden; ++i) out[i] += weight * y[i];
  }
  return out;
}

}  // namespace holdfast::kernels::reference
