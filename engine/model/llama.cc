#include "engine/model/llama.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::Buffer;
using kernels::RowSpan;
using kernels::Status;

// Rows whose logits are computed at a time: enough that the head's weights are
// not read once a row, few enough that the buffer stays small.
constexpr int kLogitRows = 16;

class Llama final : public Model {
 public:
  Llama(const LlamaConfig& config, LlamaWeights weights,
        kernels::Backend* backend)
      : config_(config), weights_(std::move(weights)), backend_(*backend) {}

  Status Prepare(std::string name, kernels::StateType state_type, int max_rows);

  const ModelInfo& info() const override { return info_; }
  const CacheLayout& layout() const override { return layout_; }
  const kernels::KvShape& kv_shape() const override { return kv_shape_; }
  Status Forward(std::span<const SequenceRows> sequences) override;
  Status LogitsFromHidden(const std::byte* sections,
                          std::span<float> logits) override;

 private:
  int q_width() const { return config_.heads * config_.head_dim; }
  int kv_width() const { return config_.kv_heads * config_.head_dim; }
  int qkv_width() const { return q_width() + 2 * kv_width(); }

  void DescribeCache(kernels::StateType state_type);
  Status AllocateBuffers();
  Status CheckSequence(const SequenceRows& sequence) const;
  Status Collect(std::span<const SequenceRows> sequences);
  void Attend(const LlamaLayer& layer, int index);
  void FeedForward(const LlamaLayer& layer);
  void WriteLogits(std::span<const SequenceRows> sequences);
  void AskLogits(const float* hidden, float* out);
  void FlushLogits();

  LlamaConfig config_;
  LlamaWeights weights_;
  kernels::Backend& backend_;
  ModelInfo info_;
  CacheLayout layout_;
  kernels::KvShape kv_shape_;
  std::unique_ptr<kernels::RopeTable> rope_;
  float attention_scale_ = 0;
  int max_rows_ = 0;

  // Of one launch. Buffers hold max_rows_ rows of the width named; narrow_ also
  // the rows waiting for their logits, which may be more (a sequence can ask
  // for all rows and once more for the last).
  std::vector<std::int32_t> ids_;
  std::vector<RowSpan> spans_;
  int rows_ = 0;
  std::unique_ptr<Buffer> stream_;  // hidden: the residual stream
  std::unique_ptr<Buffer> narrow_;  // hidden or q: normed rows, attention out
  std::unique_ptr<Buffer> wide_;    // qkv or 2 ffn
  std::unique_ptr<Buffer> middle_;  // hidden or ffn
  // Rows waiting for their logits, and where these go.
  std::unique_ptr<Buffer> logit_rows_;  // kLogitRows x hidden
  std::unique_ptr<Buffer> logits_;      // kLogitRows x vocabulary
  std::vector<float*> logit_targets_;
};

Status Llama::Prepare(std::string name, kernels::StateType state_type,
                      int max_rows) {
  max_rows_ = max_rows;
  info_.name = std::move(name);
  info_.architecture = config_.architecture;
  info_.vocab_size = config_.vocab_size;
  info_.max_context = config_.max_context;
  info_.layers = config_.layers;
  info_.hidden = config_.hidden;
  info_.config_digest_input = LlamaConfigText(config_);
  info_.weight_bytes = weights_.bytes;
  DescribeCache(state_type);
  // As the reference has it: the power is taken in double.
  attention_scale_ = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(config_.head_dim)));

  kernels::Limits limits;
  limits.max_rows = max_rows;
  limits.max_cols =
      std::max({config_.hidden, q_width(), qkv_width(), 2 * config_.ffn});
  limits.max_vocab = config_.vocab_size;
  limits.max_heads = config_.heads;
  limits.max_head_dim = config_.head_dim;
  limits.max_positions = config_.max_context;
  HF_RETURN_IF_ERROR(backend_.Prepare(limits));
  const std::vector<float> frequencies = InverseFrequencies(
      config_.rope, config_.head_dim, weights_.rope_divisors);
  HF_ASSIGN_OR_RETURN(rope_,
                      backend_.MakeRopeTable(frequencies, config_.max_context));
  return AllocateBuffers();
}

void Llama::DescribeCache(kernels::StateType state_type) {
  kv_shape_.layers = config_.layers;
  kv_shape_.kv_heads = config_.kv_heads;
  kv_shape_.head_dim = config_.head_dim;
  kv_shape_.state_type = state_type;
  const auto layers = static_cast<std::uint32_t>(config_.layers);
  const std::uint64_t bytes = kv_shape_.TokenBytes() * layers;
  layout_.views = {{"K", bytes, layers}, {"V", bytes, layers}};
  layout_.sections = {
      {"h_last", static_cast<std::uint64_t>(config_.hidden) * sizeof(float)}};
}

Status Llama::AllocateBuffers() {
  ids_.reserve(max_rows_);
  spans_.reserve(max_rows_);
  logit_targets_.reserve(kLogitRows);
  const struct {
    std::unique_ptr<Buffer>* buffer;
    int rows;
    int cols;
  } wanted[] = {
      {&stream_, max_rows_, config_.hidden},
      {&narrow_, std::max(max_rows_, kLogitRows),
       std::max(config_.hidden, q_width())},
      {&wide_, max_rows_, std::max(qkv_width(), 2 * config_.ffn)},
      {&middle_, max_rows_, std::max(config_.hidden, config_.ffn)},
      {&logit_rows_, kLogitRows, config_.hidden},
      {&logits_, kLogitRows, config_.vocab_size},
  };
  for (const auto& want : wanted) {
    HF_ASSIGN_OR_RETURN(*want.buffer,
                        backend_.Allocate(static_cast<std::size_t>(want.rows) *
                                          want.cols * sizeof(float)));
  }
  return kernels::OkStatus();
}

Status Llama::CheckSequence(const SequenceRows& sequence) const {
  const auto broken = [](const auto&... what) {
    return kernels::InvalidArgument(Message("forward: ", what...));
  };
  const std::size_t rows = sequence.ids.size();
  if (rows == 0) return broken("a sequence without rows");
  if (sequence.position < 0 || sequence.position > config_.max_context ||
      rows >
          static_cast<std::size_t>(config_.max_context - sequence.position)) {
    return broken(rows, " rows from position ", sequence.position,
                  " pass the context of ", config_.max_context, " tokens");
  }
  if (sequence.blocks == nullptr || sequence.sections == nullptr) {
    return broken("a sequence without blocks or sections");
  }
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  if ((!sequence.last_logits.empty() && sequence.last_logits.size() != vocab) ||
      (!sequence.all_logits.empty() &&
       sequence.all_logits.size() != rows * vocab)) {
    return broken("the room for logits does not fit ", rows, " rows of ",
                  vocab);
  }
  for (std::int32_t id : sequence.ids) {
    if (id < 0 || id >= config_.vocab_size) {
      return broken("token id ", id, " is not in the vocabulary of ",
                    config_.vocab_size);
    }
  }
  return kernels::OkStatus();
}

// Lays the sequences' rows one after the other.
Status Llama::Collect(std::span<const SequenceRows> sequences) {
  ids_.clear();
  spans_.clear();
  rows_ = 0;
  for (const SequenceRows& sequence : sequences) {
    HF_RETURN_IF_ERROR(CheckSequence(sequence));
    const std::size_t rows = sequence.ids.size();
    if (rows > static_cast<std::size_t>(max_rows_ - rows_)) {
      return kernels::InvalidArgument(
          Message("forward: more rows than the ", max_rows_, " prepared for"));
    }
    RowSpan span;
    span.blocks = sequence.blocks;
    span.first_row = rows_;
    span.position = sequence.position;
    span.rows = static_cast<int>(rows);
    spans_.push_back(span);
    ids_.insert(ids_.end(), sequence.ids.begin(), sequence.ids.end());
    rows_ += span.rows;
  }
  return kernels::OkStatus();
}

void Llama::Attend(const LlamaLayer& layer, int index) {
  float* normed = narrow_->floats();
  float* qkv = wide_->floats();
  backend_.RmsNorm(stream_->floats(), layer.attention_norm->floats(),
                   config_.rms_eps, rows_, config_.hidden, normed);
  backend_.MatMul(*layer.qkv, normed, rows_,
                  layer.qkv_bias ? layer.qkv_bias->floats() : nullptr, qkv);
  float* k = qkv + q_width();
  if (layer.q_norm != nullptr) {
    backend_.HeadNorm(qkv, layer.q_norm->floats(), config_.rms_eps, rows_,
                      qkv_width(), config_.heads, config_.head_dim);
    backend_.HeadNorm(k, layer.k_norm->floats(), config_.rms_eps, rows_,
                      qkv_width(), config_.kv_heads, config_.head_dim);
  }
  backend_.Rope(qkv, qkv_width(), config_.heads, config_.head_dim, *rope_,
                spans_);
  backend_.Rope(k, qkv_width(), config_.kv_heads, config_.head_dim, *rope_,
                spans_);
  backend_.StoreKv(kv_shape_, index, k, k + kv_width(), qkv_width(), spans_);
  float* attended = narrow_->floats();  // normed rows are used up
  backend_.Attention(kv_shape_, index, qkv, qkv_width(), config_.heads,
                     attention_scale_, spans_, attended);
  backend_.MatMul(*layer.output, attended, rows_,
                  layer.output_bias ? layer.output_bias->floats() : nullptr,
                  middle_->floats());
  backend_.Add(stream_->floats(), middle_->floats(), rows_, config_.hidden);
}

void Llama::FeedForward(const LlamaLayer& layer) {
  float* narrow = narrow_->floats();
  backend_.RmsNorm(stream_->floats(), layer.ffn_norm->floats(), config_.rms_eps,
                   rows_, config_.hidden, narrow);
  backend_.MatMul(*layer.gate_up, narrow, rows_, nullptr, wide_->floats());
  backend_.SiluMul(wide_->floats(), rows_, config_.ffn, middle_->floats());
  backend_.MatMul(*layer.down, middle_->floats(), rows_, nullptr, narrow);
  backend_.Add(stream_->floats(), narrow, rows_, config_.hidden);
}

void Llama::AskLogits(const float* hidden, float* out) {
  const std::size_t cols = config_.hidden;
  std::memcpy(logit_rows_->floats() + logit_targets_.size() * cols, hidden,
              cols * sizeof(float));
  logit_targets_.push_back(out);
  if (logit_targets_.size() == kLogitRows) FlushLogits();
}

void Llama::FlushLogits() {
  const int rows = static_cast<int>(logit_targets_.size());
  if (rows == 0) return;
  float* normed = narrow_->floats();
  backend_.RmsNorm(logit_rows_->floats(), weights_.final_norm->floats(),
                   config_.rms_eps, rows, config_.hidden, normed);
  const kernels::Matrix& head =
      weights_.head != nullptr ? *weights_.head : *weights_.embedding;
  backend_.MatMul(head, normed, rows, nullptr, logits_->floats());
  const std::size_t vocab = config_.vocab_size;
  for (int i = 0; i < rows; ++i) {
    std::memcpy(logit_targets_[i], logits_->floats() + i * vocab,
                vocab * sizeof(float));
  }
  logit_targets_.clear();
}

void Llama::WriteLogits(std::span<const SequenceRows> sequences) {
  const std::size_t vocab = config_.vocab_size;
  const std::size_t hidden = config_.hidden;
  const float* stream = stream_->floats();
  logit_targets_.clear();
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    const RowSpan& span = spans_[s];
    if (!sequence.all_logits.empty()) {
      for (int i = 0; i < span.rows; ++i) {
        AskLogits(stream + (span.first_row + i) * hidden,
                  sequence.all_logits.data() + i * vocab);
      }
    }
    if (!sequence.last_logits.empty()) {
      AskLogits(stream + (span.first_row + span.rows - 1) * hidden,
                sequence.last_logits.data());
    }
  }
  FlushLogits();
}

Status Llama::Forward(std::span<const SequenceRows> sequences) {
  HF_RETURN_IF_ERROR(Collect(sequences));
  if (rows_ == 0) return kernels::OkStatus();
  backend_.EmbedRows(*weights_.embedding, ids_, stream_->floats());
  for (int i = 0; i < config_.layers; ++i) {
    Attend(weights_.layers[i], i);
    FeedForward(weights_.layers[i]);
  }
  HF_RETURN_IF_ERROR(backend_.Synchronize());
  const std::size_t hidden = config_.hidden;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const int last = spans_[s].first_row + spans_[s].rows - 1;
    std::memcpy(sequences[s].sections, stream_->floats() + last * hidden,
                hidden * sizeof(float));
  }
  WriteLogits(sequences);
  return backend_.Synchronize();
}

Status Llama::LogitsFromHidden(const std::byte* sections,
                               std::span<float> logits) {
  if (logits.size() != static_cast<std::size_t>(config_.vocab_size)) {
    return kernels::InvalidArgument(Message("logits: room for ", logits.size(),
                                            " of ", config_.vocab_size,
                                            " numbers"));
  }
  logit_targets_.clear();
  // The only section, at its start.
  AskLogits(reinterpret_cast<const float*>(sections), logits.data());
  FlushLogits();
  return backend_.Synchronize();
}

}  // namespace

kernels::StatusOr<std::unique_ptr<Model>> MakeLlama(
    std::string name, const LlamaConfig& config, LlamaWeights weights,
    kernels::StateType state_type, int max_rows, kernels::Backend* backend) {
  auto model = std::make_unique<Llama>(config, std::move(weights), backend);
  HF_RETURN_IF_ERROR(model->Prepare(std::move(name), state_type, max_rows));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace holdfast::model
