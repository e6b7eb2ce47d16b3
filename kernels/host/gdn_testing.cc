#include "kernels/host/gdn_testing.h"

#include <cmath>
#include <cstring>

#include "kernels/float16.h"

namespace holdfast::kernels::testing {

GdnLayer::GdnLayer(const GdnShape& shape, std::uint64_t seed)
    : shape(shape),
      random(seed),
      conv(random.Floats(std::size_t{kConvTaps} * shape.Channels())),
      decay_rate(random.Floats(shape.value_heads)),
      dt_bias(random.Floats(shape.value_heads)),
      norm(random.Floats(shape.value_dim, 2.0f)) {
  for (float& rate : decay_rate) rate = -2.0f * rate * rate;
}

GdnWeights GdnLayer::weights() const {
  return {conv.data(), decay_rate.data(), dt_bias.data(), norm.data(), 1e-6f};
}

reference::GdnNumbers GdnLayer::numbers() const {
  reference::GdnNumbers numbers;
  for (int c = 0; c < shape.Channels(); ++c) {
    for (int tap = 0; tap < kConvTaps; ++tap) {
      numbers.conv.push_back(conv[tap * shape.Channels() + c]);
    }
  }
  numbers.decay_rate = reference::FromFloats(decay_rate);
  numbers.dt_bias = reference::FromFloats(dt_bias);
  numbers.norm = reference::FromFloats(norm);
  numbers.norm_eps = 1e-6f;
  return numbers;
}

std::vector<float> GdnLayer::Rows(int rows) {
  const int width = shape.ProjectedWidth();
  auto values = random.Floats(static_cast<std::size_t>(rows) * width);
  const int gates = shape.Channels() + shape.ValueWidth();
  for (int r = 0; r < rows; ++r) {
    float* row = &values[static_cast<std::size_t>(r) * width];
    for (int i = gates; i < width; ++i) row[i] *= 5.0f;
    if (r / 8 % 2 != 0) continue;
    for (int i = 0; i < shape.Channels(); ++i) row[i] *= 1e-3f;
  }
  return values;
}

GdnSections::GdnSections(const GdnShape& shape, std::uint32_t fill)
    : shape_(shape) {
  place_.tail = 64;
  place_.state = 64 + (shape.TailBytes() + 63) / 64 * 64;
  memory_.assign((place_.state + shape.StateBytes()) / 4 + 16, fill);
}

reference::GdnState GdnSections::state() const {
  const auto* bytes = reinterpret_cast<const std::byte*>(memory_.data());
  reference::GdnState numbers = reference::ZeroState(shape_);
  for (std::size_t i = 0; i < numbers.tail.size(); ++i) {
    if (shape_.state_type == StateType::kBF16) {
      std::uint16_t bits;
      std::memcpy(&bits, bytes + place_.tail + i * 2, sizeof(bits));
      numbers.tail[i] = Bf16ToFloat(bits);
    } else {
      float value;
      std::memcpy(&value, bytes + place_.tail + i * 4, sizeof(value));
      numbers.tail[i] = value;
    }
  }
  constexpr int kStripe = 32;
  std::vector<float> state(numbers.state.size());
  std::memcpy(state.data(), bytes + place_.state, shape_.StateBytes());
  std::size_t at = 0;
  for (int h = 0; h < shape_.value_heads; ++h) {
    for (int i = 0; i < shape_.key_dim; ++i) {
      for (int c = 0; c < shape_.value_dim; ++c) {
        const int stripe = h * (shape_.value_dim / kStripe) + c / kStripe;
        numbers.state[at++] =
            state[(stripe * shape_.key_dim + i) * kStripe + c % kStripe];
      }
    }
  }
  return numbers;
}

}  // namespace holdfast::kernels::testing
