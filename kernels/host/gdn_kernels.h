// Inner loops of the gated delta net, one table for every instruction set.
#ifndef HOLDFAST_KERNELS_HOST_GDN_KERNELS_H_
#define HOLDFAST_KERNELS_HOST_GDN_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace holdfast::kernels {

// Value columns whose state lies together.
inline constexpr int kStripe = 32;

// Channels of the convolution, over the rows of one span: a head's, or those of
// a run of heads of one kind.
struct GdnConvHeads {
  const float* in = nullptr;  // of row 0
  std::int64_t in_stride = 0;
  int rows = 0;
  int dims = 0;
  // [tap][channels] and [kConvTaps - 1][channels], from the first channel.
  const float* weights = nullptr;
  std::byte* tail = nullptr;
  std::int64_t channels = 0;
  StateType state_type = StateType::kBF16;
  bool from_zero = false;  // the tail's bytes are not used
  // Of a head whose numbers are normalised, dividing dims; 0: they are not.
  int norm_dims = 0;
  float scale = 1.0f;    // after the norm
  float* out = nullptr;  // [row][dims]
};

// Stripes of one head's state and the rows that pass over them.
struct GdnStripes {
  float* state = nullptr;  // [stripe][key_dim][kStripe]
  int stripes = 1;
  int key_dim = 0;
  int rows = 0;
  bool from_zero = false;  // the state's bytes are not used
  // State that will be wanted next: its first stripes are fetched; may be null.
  const float* next = nullptr;
  const float* q = nullptr;  // [row][key_dim]
  const float* k = nullptr;
  float* v = nullptr;  // columns of the stripes; the outputs replace them
  std::int64_t v_stride = 0;
  const float* beta = nullptr;  // [row]
  const float* decay = nullptr;
};

// One row over the states of value heads that lie one after the other.
struct GdnStep {
  float* state = nullptr;  // [head][stripe][key_dim][kStripe]
  int heads = 0;
  int heads_of_key = 1;  // that share a key head
  int key_dim = 0;
  int value_dim = 0;
  bool from_zero = false;    // the state's bytes are not used
  const float* q = nullptr;  // [key head][key_dim]
  const float* k = nullptr;
  float* v = nullptr;  // [head][value_dim]; the outputs replace them
  // Of each head, gate_stride apart.
  const float* beta = nullptr;
  const float* decay = nullptr;
  std::int64_t gate_stride = 1;
};

// The gated norm of one head's rows, or of one row's heads.
struct GdnNormHead {
  const float* x = nullptr;  // [row][dims]
  int rows = 0;
  int dims = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
  const float* z = nullptr;
  std::int64_t z_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

struct GdnKernels {
  // Stripes that `recur` takes at a time; faster where their number is a
  // multiple.
  int stripes;
  // Leaves the tail that follows the last row.
  void (*conv)(const GdnConvHeads& heads);
  // One row: beta and decay of `heads` heads, written `stride` apart;
  // decay_rate and dt_bias are those of the first.
  void (*gates)(const float* b, const float* a, const float* decay_rate,
                const float* dt_bias, int heads, std::int64_t stride,
                float* beta, float* decay);
  void (*recur)(const GdnStripes& stripes);
  void (*step)(const GdnStep& step);
  void (*gated_norm)(const GdnNormHead& head);
};

// Of the best target that this machine and Highway's mask of targets allow.
const GdnKernels* ChooseGdnKernels();

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_GDN_KERNELS_H_
