#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/reference/gdn.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::GdnHeads;
using kernels::GdnShape;
using kernels::StateType;
using kernels::reference::FromFloats;
using kernels::reference::Numbers;

constexpr int kStripe = 32;
constexpr float kEps = 1e-6f;

struct Layer {
  std::vector<float> conv;  // [tap][channel]
  std::vector<float> decay_rate, dt_bias, norm;

  Layer(const GdnShape& shape, Random& random)
      : conv(random.Floats(std::size_t{kernels::kConvTaps} * shape.Channels())),
        decay_rate(random.Floats(shape.value_heads)),
        dt_bias(random.Floats(shape.value_heads)),
        norm(random.Floats(shape.value_dim, 2.0f)) {
    for (float& rate : decay_rate) rate = -2.0f * rate * rate;
  }

  kernels::reference::GdnNumbers numbers(const GdnShape& shape) const {
    kernels::reference::GdnNumbers numbers;
    for (int c = 0; c < shape.Channels(); ++c) {
      for (int tap = 0; tap < kernels::kConvTaps; ++tap) {
        numbers.conv.push_back(conv[tap * shape.Channels() + c]);
      }
    }
    numbers.decay_rate = FromFloats(decay_rate);
    numbers.dt_bias = FromFloats(dt_bias);
    numbers.norm = FromFloats(norm);
    numbers.norm_eps = kEps;
    return numbers;
  }
};

// In the order of the twin's: [value head][key dim][value dim].
std::vector<float> StateOf(const GdnShape& shape, const std::byte* bytes) {
  std::vector<float> kept(shape.StateBytes() / sizeof(float));
  std::memcpy(kept.data(), bytes, shape.StateBytes());
  std::vector<float> state;
  for (int h = 0; h < shape.value_heads; ++h) {
    for (int i = 0; i < shape.key_dim; ++i) {
      for (int c = 0; c < shape.value_dim; ++c) {
        const int stripe = h * (shape.value_dim / kStripe) + c / kStripe;
        state.push_back(
            kept[(stripe * shape.key_dim + i) * kStripe + c % kStripe]);
      }
    }
  }
  return state;
}

std::vector<float> TailOf(const GdnShape& shape, const std::byte* bytes) {
  std::vector<float> tail((kernels::kConvTaps - 1) * shape.Channels());
  for (std::size_t i = 0; i < tail.size(); ++i) {
    if (shape.state_type == StateType::kF32) {
      std::memcpy(&tail[i], bytes + 4 * i, 4);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    tail[i] = kernels::Bf16ToFloat(bits);
  }
  return tail;
}

// Two sequences: one in a prefill and single rows, the other beside its rows.
void Run(Checker& checker, const GdnShape& shape, const std::string& name,
         int rows) {
  auto& backend = checker.backend();
  kernels::Limits limits;
  limits.max_rows = 2 * rows;
  limits.max_positions = 2 * rows;
  limits.gdn = shape;
  checker.Expect(backend.Prepare(limits));
  Random random(shape.key_dim);
  const Layer layer(shape, random);
  const kernels::GdnWeights weights = {
      checker.Upload(layer.conv), checker.Upload(layer.decay_rate),
      checker.Upload(layer.dt_bias), checker.Upload(layer.norm), kEps};
  const int width = shape.ProjectedWidth();
  // Rows of both sequences in turn: row r of sequence s is at 2 r + s.
  // Numbers that bf16 does not hold: the convolution rounds them for such
  // tails.
  auto projected = random.Floats(std::size_t(2 * rows) * width, 1.01f);
  kernels::GdnPlace place;
  place.tail = 64;
  place.state = 64 + (shape.TailBytes() + 63) / 64 * 64;
  const std::size_t section_bytes = place.state + shape.StateBytes();
  std::byte* const sections[] = {checker.Allocate(section_bytes),
                                 checker.Allocate(section_bytes)};
  for (std::byte* section : sections) {
    checker.Fill(section, section_bytes / 4 * 4, 0x7fc07fc0);
  }
  std::byte* const block = checker.Allocate(16);
  std::byte* const blocks[] = {block, block};
  const std::size_t out_width = shape.ValueWidth();
  std::vector<float> got(2 * rows * out_width);
  const auto launch = [&](int position, int count) {
    // The launch's rows: sequence 0's, then sequence 1's.
    std::vector<float> x;
    for (int s = 0; s < 2; ++s) {
      for (int r = 0; r < count; ++r) {
        const auto at = projected.begin() + (2 * (position + r) + s) * width;
        x.insert(x.end(), at, at + width);
      }
    }
    float* const out =
        checker.Upload(std::vector<float>(2 * count * out_width));
    const kernels::RowSpan spans[] = {
        {blocks, 0, position, count, sections[0]},
        {blocks, count, position, count, sections[1]}};
    backend.GatedDeltaNet(shape, weights, place, checker.Upload(x), width,
                          spans, out);
    const auto numbers = checker.Download(out, 2 * count * out_width);
    for (int s = 0; s < 2; ++s) {
      for (int r = 0; r < count; ++r) {
        std::copy_n(&numbers[(s * count + r) * out_width], out_width,
                    &got[(2 * (position + r) + s) * out_width]);
      }
    }
  };
  launch(0, rows - 2);
  launch(rows - 2, 1);
  launch(rows - 1, 1);

  Numbers want(got.size());
  Numbers tails, states;
  for (int s = 0; s < 2; ++s) {
    auto state = kernels::reference::ZeroState(shape);
    for (int r = 0; r < rows; ++r) {
      const float* row = &projected[(2 * r + s) * width];
      const Numbers out = kernels::reference::GdnRow(
          shape, layer.numbers(shape), Numbers(row, row + width), state);
      std::copy(out.begin(), out.end(), want.begin() + (2 * r + s) * out_width);
    }
    tails.insert(tails.end(), state.tail.begin(), state.tail.end());
    states.insert(states.end(), state.state.begin(), state.state.end());
  }
  checker.Compare(name, got, want, kFloatLimit);
  std::vector<float> got_tails, got_states;
  for (std::byte* section : sections) {
    const auto bytes =
        checker.DownloadBytes(section + place.tail, section_bytes - place.tail);
    const auto tail = TailOf(shape, bytes.data());
    const auto state = StateOf(shape, bytes.data() + place.state - place.tail);
    got_tails.insert(got_tails.end(), tail.begin(), tail.end());
    got_states.insert(got_states.end(), state.begin(), state.end());
  }
  checker.Compare(name + " tail", got_tails, tails, 0.0);
  checker.Compare(name + " state", got_states, states, kFloatLimit);
  checker.Release();
}

}  // namespace

void CheckGatedDeltaNet(Checker& checker) {
  const auto bf16 = StateType::kBF16;
  Run(checker, {1, 2, 128, 128, GdnHeads::kGrouped, bf16}, "gdn 128", 12);
  Run(checker, {2, 6, 32, 64, GdnHeads::kTiled, bf16}, "gdn 32 tiled", 12);
  Run(checker, {2, 4, 16, 32, GdnHeads::kGrouped, StateType::kF32},
      "gdn 16 f32", 40);
  Run(checker, {1, 1, 256, 32, GdnHeads::kGrouped, bf16}, "gdn 256", 6);
  // Long enough that errors of the recurrence would add up.
  Run(checker, {1, 2, 128, 32, GdnHeads::kGrouped, bf16}, "gdn 128 long", 65);
  Run(checker, {1, 2, 64, 32, GdnHeads::kTiled, bf16}, "gdn 64 long", 130);
}

}  // namespace holdfast::gpu_check
