#include "kernels/cuda/device.h"
#include "kernels/cuda/gdn.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kTail = kConvTaps - 1;
constexpr int kStripe = 32;  // value columns that lie together in the state
// A warp: 8 columns x 4 slices of the key's dims.
constexpr int kSlices = 4;
constexpr int kWarpColumns = kWarpLanes / kSlices;
static_assert(kWarps * kWarpColumns == kStripe);
constexpr float kL2Eps = 1e-6f;  // added to the sum of squares

// One layer of the launch, as kernels take it.
struct Layer {
  int key_heads, value_heads, key_dim, value_dim;
  int channels;
  bool tiled;
  bool bf16;  // the tail
  GdnWeights weights;
  GdnPlace place;
  const float* projected;
  int row_stride;
  float* mixed;  // [row][channels], convolved
  float* beta;   // [row][value head]
  float* decay;
  float* out;  // [row][value head][value_dim]
};

__device__ __forceinline__ float LoadTail(const std::byte* tail, bool bf16,
                                          int index) {
  if (!bf16) return reinterpret_cast<const float*>(tail)[index];
  return Bf16ToFloat(reinterpret_cast<const std::uint16_t*>(tail)[index]);
}

__device__ __forceinline__ void StoreTail(std::byte* tail, bool bf16, int index,
                                          float value) {
  if (bf16) {
    reinterpret_cast<std::uint16_t*>(tail)[index] =
        static_cast<std::uint16_t>(FloatToBf16(value));
  } else {
    reinterpret_cast<float*>(tail)[index] = value;
  }
}

// The convolution's input of row `row` of a span, rounded as it is kept; rows
// below 0 are the tail's.
__device__ __forceinline__ float ConvInput(const Layer& layer,
                                           const SpanPlace& span, int row,
                                           int channel) {
  if (row < 0) {
    if (span.position == 0) return 0.0f;
    return LoadTail(span.sections + layer.place.tail, layer.bf16,
                    (kTail + row) * layer.channels + channel);
  }
  const float value =
      layer.projected[std::int64_t{span.first_row + row} * layer.row_stride +
                      channel];
  return layer.bf16 ? RoundToBf16(value) : value;
}

// Grid: [channels][rows of the longest span][spans].
__global__ void ConvKernel(Layer layer, const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.z];
  const int row = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= span.rows || channel >= layer.channels) return;
  float sum = 0.0f;
#pragma unroll
  for (int tap = 0; tap < kConvTaps; ++tap) {
    sum = fmaf(layer.weights.conv[tap * layer.channels + channel],
               ConvInput(layer, span, row - kTail + tap, channel), sum);
  }
  layer.mixed[std::int64_t{span.first_row + row} * layer.channels + channel] =
      Silu(sum);
}

// After all convolutions have read the old tail. Grid: [channels][spans].
__global__ void TailKernel(Layer layer, const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.y];
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (channel >= layer.channels) return;
  float next[kTail];
#pragma unroll
  for (int i = 0; i < kTail; ++i) {
    next[i] = ConvInput(layer, span, span.rows - kTail + i, channel);
  }
  std::byte* const tail = span.sections + layer.place.tail;
#pragma unroll
  for (int i = 0; i < kTail; ++i) {
    StoreTail(tail, layer.bf16, i * layer.channels + channel, next[i]);
  }
}

// Brings q and k to length 1, q then to 1 / sqrt(key_dim); a warp a head.
__global__ void L2NormKernel(Layer layer, const RowPlace* places, int rows,
                             float q_scale) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarps + WarpInBlock();
  const int heads = 2 * layer.key_heads;
  if (i >= std::int64_t{rows} * heads) return;  // the whole warp
  const int head = static_cast<int>(i % heads);
  float* numbers = layer.mixed +
                   std::int64_t{places[i / heads].row} * layer.channels +
                   head * layer.key_dim;
  float squares = 0.0f;
  for (int d = Lane(); d < layer.key_dim; d += kWarpLanes) {
    squares = fmaf(numbers[d], numbers[d], squares);
  }
  const float scale = (head < layer.key_heads ? q_scale : 1.0f) /
                      sqrtf(WarpSum(squares) + kL2Eps);
  for (int d = Lane(); d < layer.key_dim; d += kWarpLanes) {
    numbers[d] *= scale;
  }
}

__global__ void GateKernel(Layer layer, const RowPlace* places, int rows) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{rows} * layer.value_heads) return;
  const std::int64_t row = places[i / layer.value_heads].row;
  const int head = static_cast<int>(i % layer.value_heads);
  const float* b = layer.projected + row * layer.row_stride + layer.channels +
                   layer.value_heads * layer.value_dim + head;
  const float x = b[layer.value_heads] + layer.weights.dt_bias[head];
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  const std::int64_t at = row * layer.value_heads + head;
  layer.beta[at] = Sigmoid(b[0]);
  layer.decay[at] = expf(layer.weights.decay_rate[head] * softplus);
}

// Adds the four slices of a column: they lie 8 lanes apart.
__device__ __forceinline__ float SliceSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, kWarpColumns);
  return value + __shfl_xor_sync(kAllLanes, value, 2 * kWarpColumns);
}

// Grid: [stripes of 32 columns][value heads][spans]. With S the decayed state,
// u = beta (v - S^T k): the new state is S + k u^T and the output
// S^T q + (k . q) u, so one pass over the state serves both reads.
// kExact: a slice is kSlice dims, else at most.
template <int kSlice, bool kExact>
__global__ void __launch_bounds__(kThreads)
    RecurKernel(Layer layer, const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.z];
  const int head = static_cast<int>(blockIdx.y);
  const int slice = kExact ? kSlice : layer.key_dim / kSlices;
  const int first = Lane() / kWarpColumns * slice;  // key dim
  const int in_stripe = WarpInBlock() * kWarpColumns + Lane() % kWarpColumns;
  const int column = static_cast<int>(blockIdx.x) * kStripe + in_stripe;
  const int key_head = layer.tiled
                           ? head % layer.key_heads
                           : head / (layer.value_heads / layer.key_heads);
  const std::int64_t stripe =
      std::int64_t{head} * (layer.value_dim / kStripe) + blockIdx.x;
  float* const kept =
      reinterpret_cast<float*>(span.sections + layer.place.state) +
      (stripe * layer.key_dim + first) * kStripe + in_stripe;

  float state[kSlice];
#pragma unroll
  for (int i = 0; i < kSlice; ++i) {
    const bool read = span.position > 0 && (kExact || i < slice);
    state[i] = read ? kept[i * kStripe] : 0.0f;
  }
  const int k_at = (layer.key_heads + key_head) * layer.key_dim + first;
  const int q_at = key_head * layer.key_dim + first;
  const int v_at =
      2 * layer.key_heads * layer.key_dim + head * layer.value_dim + column;
  for (int row = span.first_row; row < span.first_row + span.rows; ++row) {
    const float* mixed = layer.mixed + std::int64_t{row} * layer.channels;
    const std::int64_t gate = std::int64_t{row} * layer.value_heads + head;
    const float decay = layer.decay[gate];
    float key[kSlice];
    float read = 0.0f;
    float shown = 0.0f;
    float both = 0.0f;
#pragma unroll
    for (int i = 0; i < kSlice; i += 4) {
      float4 k = {};
      float4 q = {};
      if (kExact || i < slice) {
        k = *reinterpret_cast<const float4*>(mixed + k_at + i);
        q = *reinterpret_cast<const float4*>(mixed + q_at + i);
      }
      const float ks[] = {k.x, k.y, k.z, k.w};
      const float qs[] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        key[i + j] = ks[j];
        state[i + j] *= decay;
        read = fmaf(ks[j], state[i + j], read);
        shown = fmaf(qs[j], state[i + j], shown);
        both = fmaf(ks[j], qs[j], both);
      }
    }
    const float update = layer.beta[gate] * (mixed[v_at] - SliceSum(read));
#pragma unroll
    for (int i = 0; i < kSlice; ++i) {
      state[i] = fmaf(key[i], update, state[i]);
    }
    const float result = fmaf(SliceSum(both), update, SliceSum(shown));
    if (Lane() < kWarpColumns) {
      layer.out[gate * layer.value_dim + column] = result;
    }
  }
#pragma unroll
  for (int i = 0; i < kSlice; ++i) {
    if (kExact || i < slice) kept[i * kStripe] = state[i];
  }
}

// out = norm(out) silu(z); a warp a head.
__global__ void GatedNormKernel(Layer layer, const RowPlace* places, int rows) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarps + WarpInBlock();
  if (i >= std::int64_t{rows} * layer.value_heads) return;  // the whole warp
  const std::int64_t row = places[i / layer.value_heads].row;
  const int head = static_cast<int>(i % layer.value_heads);
  float* out = layer.out + (row * layer.value_heads + head) * layer.value_dim;
  const float* z = layer.projected + row * layer.row_stride + layer.channels +
                   head * layer.value_dim;
  float squares = 0.0f;
  for (int d = Lane(); d < layer.value_dim; d += kWarpLanes) {
    squares = fmaf(out[d], out[d], squares);
  }
  const float mean = WarpSum(squares) / static_cast<float>(layer.value_dim);
  const float scale = 1.0f / sqrtf(mean + layer.weights.norm_eps);
  for (int d = Lane(); d < layer.value_dim; d += kWarpLanes) {
    out[d] = out[d] * scale * layer.weights.norm[d] * Silu(z[d]);
  }
}

}  // namespace

std::size_t GdnScratchFloats(const GdnShape& shape, int rows) {
  return static_cast<std::size_t>(rows) *
         (shape.Channels() + 2 * shape.value_heads);
}

const char* GdnRefusal(const GdnShape& shape) {
  if (shape.key_heads < 1 || shape.value_heads % shape.key_heads != 0) {
    return "value heads must be a multiple of key heads";
  }
  if (shape.key_dim < 16 || shape.key_dim > 256 || shape.key_dim % 16 != 0) {
    return "key_dim must be a multiple of 16, at most 256";
  }
  if (shape.value_dim < kStripe || shape.value_dim > 256 ||
      shape.value_dim % kStripe != 0) {
    return "value_dim must be a multiple of 32, at most 256";
  }
  return nullptr;
}

cudaError_t GatedDeltaNet(cudaStream_t stream, const GdnShape& shape,
                          const GdnWeights& weights, const GdnPlace& place,
                          const float* projected, int row_stride,
                          const LaunchTable& table, float* scratch,
                          float* out) {
  const std::int64_t rows = table.row_count;
  Layer layer = {};
  layer.key_heads = shape.key_heads;
  layer.value_heads = shape.value_heads;
  layer.key_dim = shape.key_dim;
  layer.value_dim = shape.value_dim;
  layer.channels = shape.Channels();
  layer.tiled = shape.heads == GdnHeads::kTiled;
  layer.bf16 = shape.state_type == StateType::kBF16;
  layer.weights = weights;
  layer.place = place;
  layer.projected = projected;
  layer.row_stride = row_stride;
  layer.mixed = scratch;
  layer.beta = scratch + std::int64_t{table.end_row} * layer.channels;
  layer.decay = layer.beta + std::int64_t{table.end_row} * layer.value_heads;
  layer.out = out;

  const unsigned channels = BlocksFor(layer.channels, kThreads);
  const auto spans = static_cast<unsigned>(table.span_count);
  const auto run = [&](auto kernel, dim3 grid, auto... arguments) {
    return Launch(kernel, grid, kThreads, 0, stream, layer, arguments...);
  };
  const dim3 recurrence(static_cast<unsigned>(shape.value_dim / kStripe),
                        static_cast<unsigned>(shape.value_heads), spans);
  const float q_scale = 1.0f / sqrtf(static_cast<float>(shape.key_dim));
  cudaError_t error =
      run(ConvKernel,
          dim3(channels, static_cast<unsigned>(table.longest_span), spans),
          table.spans);
  if (error != cudaSuccess) return error;
  error = run(TailKernel, dim3(channels, spans), table.spans);
  if (error != cudaSuccess) return error;
  error = run(L2NormKernel, dim3(BlocksFor(rows * 2 * shape.key_heads, kWarps)),
              table.rows, table.row_count, q_scale);
  if (error != cudaSuccess) return error;
  error = run(GateKernel, dim3(BlocksFor(rows * shape.value_heads, kThreads)),
              table.rows, table.row_count);
  if (error != cudaSuccess) return error;
  error = shape.key_dim == 128
              ? run(RecurKernel<32, true>, recurrence, table.spans)
              : run(RecurKernel<64, false>, recurrence, table.spans);
  if (error != cudaSuccess) return error;
  return run(GatedNormKernel, dim3(BlocksFor(rows * shape.value_heads, kWarps)),
             table.rows, table.row_count);
}

}  // namespace holdfast::kernels::cuda
