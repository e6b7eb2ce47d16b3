// The arithmetic a model is made of, as one interface: kernels/host implements
// it on the CPU, a CUDA backend will implement it on a GPU. Pointers named
// `float*` are the backend's memory (Allocate); for the host backend they are
// ordinary memory.
//
// Exactness. A backend states a level ("row_invariant" or "grid"). Row
// invariant means: every output row of every operation depends on that row's
// inputs alone, bit for bit, whatever `rows` is, however many threads run and
// whatever else is in the launch.
//
// Threads: one thread calls a backend at a time; the backend uses its own
// threads inside. Nothing here allocates after Prepare, other than Allocate,
// PackMatrix, UploadVector and MakeRopeTable themselves.
//
// Failure: operations on prepared buffers cannot fail on the host; a device
// reports at Synchronize.
#ifndef HOLDFAST_KERNELS_BACKEND_H_
#define HOLDFAST_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampling/token_choice.h"
#include "kernels/status.h"

namespace holdfast::kernels {

// How a weight's numbers are stored in its file.
enum class WeightType {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kF8E4M3,  // with scales beside it
};
const char* WeightTypeName(WeightType type);
// A row's numbers must be a multiple of this: 1, 32 or 256.
int WeightBlock(WeightType type);
// Bytes of one row of `cols` numbers, scales beside them not counted; 0 when
// cols is no multiple of the type's block.
std::size_t WeightRowBytes(WeightType type, std::int64_t cols);

// Type of K, V and convolution inputs in the pool. They are rounded to it
// before any use, inside their own chunk too.
enum class StateType { kBF16, kF32 };

enum class Exactness { kRowInvariant, kGrid };

// A weight as its file has it: `rows` rows of `cols` numbers, row-major. The
// bytes need only live until the call that takes the tensor returns.
struct WeightTensor {
  std::string name;  // for messages
  WeightType type = WeightType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  // Row n of the packed matrix is row row_order[n] of the file; empty: as is.
  std::vector<std::int32_t> row_order = {};
  // Of F8_E4M3: number (n, k) of the file is multiplied by
  // scales[n / scale_rows][k / scale_cols]. scale_cols is a multiple of 128, or
  // at least cols. Scales are finite and below kF8ScaleBound in magnitude.
  std::vector<float> scales = {};
  std::int64_t scale_rows = 0;
  std::int64_t scale_cols = 0;
};

// A number of F8_E4M3 (448 at most) times a scale below this is finite.
inline constexpr float kF8ScaleBound = 0x1p119f;

// A packed weight matrix; owned by the caller, meaningful to the backend that
// made it.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t rows() const { return rows_; }  // output columns of a product
  std::int64_t cols() const { return cols_; }  // input columns of a product
  std::size_t bytes() const { return bytes_; }

 protected:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::size_t bytes_ = 0;
};

// Owned memory of a backend.
class Buffer {
 public:
  virtual ~Buffer() = default;
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 protected:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// cos and sin of position x inverse frequency, for every position below a
// bound: position and inverse frequency are multiplied in float (as the
// reference implementations of these models do), cos and sin are taken of that
// float and rounded to float.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
  int rotary_dims() const { return rotary_dims_; }
  int max_positions() const { return max_positions_; }

 protected:
  int rotary_dims_ = 0;
  int max_positions_ = 0;
};

// Where K and V rows lie in a block: [view K][layer][256 tokens], then
// [view V][layer][256 tokens]; the backend orders the bytes of a layer's tokens
// within granules of 16.
struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  StateType state_type = StateType::kBF16;

  std::size_t ElementBytes() const {
    return state_type == StateType::kBF16 ? 2 : 4;
  }
  // Of one layer and one view.
  std::size_t TokenBytes() const {
    return static_cast<std::size_t>(kv_heads) * head_dim * ElementBytes();
  }
};

// Consecutive rows of one sequence in a launch.
struct RowSpan {
  // Block table: entry i holds positions [256 i, 256 i + 256). Must reach the
  // span's last row. Rows below `position` are read, rows of the span written.
  std::byte* const* blocks = nullptr;
  int first_row = 0;  // among the launch's activation rows
  int position = 0;   // absolute position of the first row
  int rows = 0;
  // The sequence's section buffer (models with recurrent state; else null).
  // Operations take the offset of what they read and write in it. Spans of one
  // launch have different buffers.
  std::byte* sections = nullptr;
};

// Which key head a value head of a gated delta net reads.
enum class GdnHeads {
  kGrouped,  // head / (value_heads / key_heads)
  kTiled,    // head % key_heads: GGUF files
};

// Taps of the causal convolution; the last multiplies the row itself.
inline constexpr int kConvTaps = 4;

// A gated delta net layer. Of each layer a sequence keeps, in its sections,
// * the tail: the convolution's last inputs, state_type, oldest first:
//   [kConvTaps - 1][channels];
// * the state: float, [value head][value_dim / 32][key_dim][32], the numbers of
//   32 value columns together.
struct GdnShape {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;      // a multiple of 16, at most 256
  int value_dim = 0;    // a multiple of 32, at most 256
  GdnHeads heads = GdnHeads::kGrouped;
  StateType state_type = StateType::kBF16;

  int KeyWidth() const { return key_heads * key_dim; }
  int ValueWidth() const { return value_heads * value_dim; }
  // Of the convolution: [q heads | k heads | v heads].
  int Channels() const { return 2 * KeyWidth() + ValueWidth(); }
  // Of a projected row: [q | k | v | z | b | a].
  int ProjectedWidth() const {
    return Channels() + ValueWidth() + 2 * value_heads;
  }
  std::size_t TailBytes() const {
    return std::size_t{kConvTaps - 1} * Channels() *
           (state_type == StateType::kBF16 ? 2 : 4);
  }
  std::size_t StateBytes() const {
    return sizeof(float) * key_dim * ValueWidth();
  }
};

// Vectors of one gated delta net layer, in the backend's memory.
struct GdnWeights {
  // [tap][channel]. A file's [channel][1][tap] is turned by UploadVector with
  // a row order: kConvTaps x channels rows of one number.
  const float* conv = nullptr;
  // Of each value head: -exp(A_log), at most 0. The loader computes it
  // (portable::Exp of the widened number, rounded to float); GGUF stores it.
  const float* decay_rate = nullptr;
  const float* dt_bias = nullptr;  // of each value head
  const float* norm = nullptr;     // value_dim
  float norm_eps = 0.0f;
};

// Where a layer's tail and state lie in a sequence's sections, in bytes; the
// state at a multiple of 64.
struct GdnPlace {
  std::size_t tail = 0;
  std::size_t state = 0;
};

// The routed experts of a feed-forward block.
struct MoeShape {
  int experts = 0;
  int top_k = 0;
  bool normalise = true;  // the chosen experts' weights sum to 1
  int hidden = 0;
  int ffn = 0;  // of one expert
};

// One expert, as a dense block has its matrices.
struct ExpertWeights {
  const Matrix* gate_up = nullptr;  // 2 ffn x hidden, the gate's rows first
  const Matrix* down = nullptr;     // hidden x ffn
};

// The largest launch that will come; Prepare sizes all scratch from it.
struct Limits {
  int max_rows = 0;
  int max_cols = 0;  // widest product input or output, vocabulary excluded
  int max_vocab = 0;
  int max_heads = 0;
  int max_head_dim = 0;
  int max_positions = 0;
  GdnShape gdn = {};  // heads 0: the model has none
  MoeShape moe = {};  // experts 0: the model has none
};

struct BackendInfo {
  std::string name;    // "host"
  std::string target;  // instruction set in use, e.g. "AVX3"
  Exactness exactness = Exactness::kRowInvariant;
  int arithmetic_revision = 0;  // raised when a change alters any result's bits
  int threads = 1;
  // What else results depend on: the kind of device, library versions and the
  // algorithms chosen so far. Empty where the revision says it all.
  std::string choices = {};
  // Whether its memory is host memory: what Allocate gives may be read and
  // written by anybody, and memory of others may take its place.
  bool host_memory = true;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;

  // ---- memory, at load time ----
  virtual Status Prepare(const Limits& limits) = 0;
  // Zeroed, aligned to 64 bytes at least.
  virtual StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) = 0;
  // Packs tensors of equal `cols`, their rows one after the other, into one
  // matrix that keeps each tensor's storage type (q, k and v of a layer, say).
  // An unsupported type or shape is an error that names tensor, type and shape.
  virtual StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const WeightTensor> parts) = 0;
  // A vector (norm weight, bias) widened to float; F32, F16 and BF16.
  virtual StatusOr<std::unique_ptr<Buffer>> UploadVector(
      const WeightTensor& tensor) = 0;
  virtual StatusOr<std::unique_ptr<RopeTable>> MakeRopeTable(
      std::span<const float> inverse_frequencies, int max_positions) = 0;

  // ---- operations; all matrices of activations are row-major ----
  // out[r] = row ids[r] of the matrix, widened. ids are host memory.
  virtual void EmbedRows(const Matrix& table, std::span<const std::int32_t> ids,
                         float* out) = 0;
  // out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight
  virtual void RmsNorm(const float* x, const float* weight, float eps, int rows,
                       int cols, float* out) = 0;
  // The same over each of `heads` runs of head_dim inside a row, in place.
  virtual void HeadNorm(float* x, const float* weight, float eps, int rows,
                        int row_stride, int heads, int head_dim) = 0;
  // y[r][n] = sum over k ascending of x[r][k] w[n][k], then + bias[n].
  virtual void MatMul(const Matrix& w, const float* x, int rows,
                      const float* bias, float* y) = 0;
  // x += y
  virtual void Add(float* x, const float* y, int rows, int cols) = 0;
  // Rotates the first rotary_dims of each of `heads` heads, halves paired
  // (dimension i with i + rotary_dims / 2). Row r of a span is at position
  // span.position + r.
  virtual void Rope(float* x, int row_stride, int heads, int head_dim,
                    const RopeTable& table, std::span<const RowSpan> spans) = 0;
  // Rounds k and v rows to the state type and writes them to the pool.
  virtual void StoreKv(const KvShape& shape, int layer, const float* k,
                       const float* v, int row_stride,
                       std::span<const RowSpan> spans) = 0;
  // Causal attention over the pool's rows 0 to each row's own position.
  // q: [rows][row_stride], heads of head_dim from the row's start;
  // out: [rows][heads x head_dim]. heads is a multiple of kv_heads.
  virtual void Attention(const KvShape& shape, int layer, const float* q,
                         int row_stride, int heads, float scale,
                         std::span<const RowSpan> spans, float* out) = 0;
  // out[r][i] = silu(gate_up[r][i]) * gate_up[r][cols + i]
  virtual void SiluMul(const float* gate_up, int rows, int cols,
                       float* out) = 0;

  // ---- gated attention, gated delta net ----
  // x[r][i] *= sigmoid(gate[r][i]); rows of x are `cols` apart, those of gate
  // gate_stride. Gated attention's q_proj has each head's query rows, then its
  // gate rows: packed with a row order that puts all queries first, q stays as
  // Attention wants it and the gates follow.
  virtual void SigmoidMul(float* x, const float* gate, int gate_stride,
                          int rows, int cols) = 0;
  // One layer from its projected rows (GdnShape::ProjectedWidth, row_stride
  // apart) to the rows that the output projection takes:
  // out[r][value head][value_dim]. Inputs of the convolution are rounded to the
  // state type before any use; q and k are normalised; the recurrence is
  // sequential; the output is normed and gated by silu(z). Each span starts
  // from its sections' tail and state and leaves there those after its last
  // row; a span at position 0 starts from zeros whatever they hold.
  virtual void GatedDeltaNet(const GdnShape& shape, const GdnWeights& weights,
                             const GdnPlace& place, const float* projected,
                             int row_stride, std::span<const RowSpan> spans,
                             float* out) = 0;

  // ---- experts ----
  // out[r] = sum over the experts of the top_k largest logits of row r (ties to
  // the lower id), ids ascending, of softmax weight x expert(x[r]). x and out:
  // [rows][hidden], not the same memory. Rows of logits are logits_stride
  // apart: the shared expert's gate can be the router matrix's last row.
  virtual void MoeExperts(const MoeShape& shape,
                          std::span<const ExpertWeights> experts,
                          const float* logits, int logits_stride,
                          const float* x, int rows, float* out) = 0;
  // x[r] += sigmoid(gate[r x gate_stride]) * y[r]
  virtual void AddGated(float* x, const float* y, const float* gate,
                        int gate_stride, int rows, int cols) = 0;

  // ---- tokens ----
  // Whether ChooseToken works. Where it does not, logits are read back.
  virtual bool chooses_tokens() const { return false; }
  // From the logits of a row, in the backend's memory; *out is there after
  // Synchronize. The token is the one that TokenChooser (kernels/sampling)
  // chooses from the same logits.
  virtual void ChooseToken(const float* /*logits*/, int /*vocab*/,
                           const TokenChoice& /*choice*/,
                           ChosenToken* /*out*/) {}

  // ---- blocks: `parts` runs of 256 tokens x part_token_bytes ----
  // Copies the granules that hold the first `rows` rows of a block.
  virtual void CopyBlockRows(const KvShape& shape, const std::byte* from,
                             int rows, std::byte* to) = 0;
  // Zeroes every row from `first_row` to the block's end.
  virtual void ZeroBlockRows(const KvShape& shape, std::byte* block,
                             int first_row) = 0;

  // ---- moving bytes, in order with the operations ----
  // Within the backend's memory, between runs that do not overlap.
  virtual void Copy(const void* from, std::size_t bytes, void* to) = 0;
  // From the backend's memory to host memory; there after Synchronize.
  virtual void Read(const void* from, std::size_t bytes, void* to) = 0;
  // From host memory, which is not needed any more when this returns, to the
  // backend's.
  virtual Status Write(const void* from, std::size_t bytes, void* to) = 0;

  // Waits for everything submitted; the first error since the last call.
  virtual Status Synchronize() = 0;
  // Whether a device has failed for good: nothing works any more, and the
  // process must be started anew. Any thread.
  virtual bool lost() const { return false; }
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_BACKEND_H_
