#include "engine/model/llama.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/launch.h"
#include "engine/model/logit_writer.h"

namespace holdfast::model {
namespace {

using kernels::Buffer;
using kernels::RowSpan;
using kernels::Status;

class Llama final : public Model {
 public:
  Llama(const LlamaConfig& config, LlamaWeights weights,
        kernels::Backend* backend)
      : config_(config), weights_(std::move(weights)), backend_(*backend) {}

  Status Prepare(std::string name, kernels::StateType state_type, int max_rows);

  const ModelInfo& info() const override { return info_; }
  const CacheLayout& layout() const override { return layout_; }
  const kernels::KvShape& kv_shape() const override { return kv_shape_; }
  void SetGrid(std::uint32_t tokens) override { layout_.grid_tokens = tokens; }
  Status Forward(std::span<const SequenceRows> sequences) override;
  // h_last is the only section, at the start.
  Status LogitsFromHidden(const std::byte* sections,
                          std::span<float> logits) override {
    return logits_.FromHidden(sections, logits);
  }

 private:
  int q_width() const { return config_.heads * config_.head_dim; }
  int kv_width() const { return config_.kv_heads * config_.head_dim; }
  int qkv_width() const { return q_width() + 2 * kv_width(); }

  void DescribeCache(kernels::StateType state_type);
  Status AllocateBuffers();
  void Attend(const LlamaLayer& layer, int index);
  void FeedForward(const LlamaLayer& layer);

  LlamaConfig config_;
  LlamaWeights weights_;
  kernels::Backend& backend_;
  ModelInfo info_;
  CacheLayout layout_;
  kernels::KvShape kv_shape_;
  std::unique_ptr<kernels::RopeTable> rope_;
  float attention_scale_ = 0;
  int max_rows_ = 0;

  // Of one launch. Buffers hold max_rows_ rows of the width named.
  Launch launch_;
  LogitWriter logits_;
  std::unique_ptr<Buffer> stream_;  // hidden: the residual stream
  std::unique_ptr<Buffer> narrow_;  // hidden or q: normed rows, attention out
  std::unique_ptr<Buffer> wide_;    // qkv or 2 ffn
  std::unique_ptr<Buffer> middle_;  // hidden or ffn
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
  launch_.Reserve(max_rows_);
  const struct {
    std::unique_ptr<Buffer>* buffer;
    int cols;
  } wanted[] = {
      {&stream_, config_.hidden},
      {&narrow_, std::max(config_.hidden, q_width())},
      {&wide_, std::max(qkv_width(), 2 * config_.ffn)},
      {&middle_, std::max(config_.hidden, config_.ffn)},
  };
  for (const auto& want : wanted) {
    HF_ASSIGN_OR_RETURN(*want.buffer,
                        backend_.Allocate(static_cast<std::size_t>(max_rows_) *
                                          want.cols * sizeof(float)));
  }
  const kernels::Matrix* head =
      weights_.head != nullptr ? weights_.head.get() : weights_.embedding.get();
  return logits_.Prepare({weights_.final_norm->floats(), config_.rms_eps, head},
                         config_.hidden, config_.vocab_size, &backend_);
}

void Llama::Attend(const LlamaLayer& layer, int index) {
  const int rows = launch_.rows();
  const std::span<const RowSpan> spans = launch_.spans();
  float* normed = narrow_->floats();
  float* qkv = wide_->floats();
  backend_.RmsNorm(stream_->floats(), layer.attention_norm->floats(),
                   config_.rms_eps, rows, config_.hidden, normed);
  backend_.MatMul(*layer.qkv, normed, rows,
                  layer.qkv_bias ? layer.qkv_bias->floats() : nullptr, qkv);
  float* k = qkv + q_width();
  if (layer.q_norm != nullptr) {
    backend_.HeadNorm(qkv, layer.q_norm->floats(), config_.rms_eps, rows,
                      qkv_width(), config_.heads, config_.head_dim);
    backend_.HeadNorm(k, layer.k_norm->floats(), config_.rms_eps, rows,
                      qkv_width(), config_.kv_heads, config_.head_dim);
  }
  backend_.Rope(qkv, qkv_width(), config_.heads, config_.head_dim, *rope_,
                spans);
  backend_.Rope(k, qkv_width(), config_.kv_heads, config_.head_dim, *rope_,
                spans);
  backend_.StoreKv(kv_shape_, index, k, k + kv_width(), qkv_width(), spans);
  float* attended = narrow_->floats();  // normed rows are used up
  backend_.Attention(kv_shape_, index, qkv, qkv_width(), config_.heads,
                     attention_scale_, spans, attended);
  backend_.MatMul(*layer.output, attended, rows,
                  layer.output_bias ? layer.output_bias->floats() : nullptr,
                  middle_->floats());
  backend_.Add(stream_->floats(), middle_->floats(), rows, config_.hidden);
}

void Llama::FeedForward(const LlamaLayer& layer) {
  const int rows = launch_.rows();
  float* narrow = narrow_->floats();
  backend_.RmsNorm(stream_->floats(), layer.ffn_norm->floats(), config_.rms_eps,
                   rows, config_.hidden, narrow);
  backend_.MatMul(*layer.gate_up, narrow, rows, nullptr, wide_->floats());
  backend_.SiluMul(wide_->floats(), rows, config_.ffn, middle_->floats());
  backend_.MatMul(*layer.down, middle_->floats(), rows, nullptr, narrow);
  backend_.Add(stream_->floats(), narrow, rows, config_.hidden);
}

Status Llama::Forward(std::span<const SequenceRows> sequences) {
  HF_RETURN_IF_ERROR(launch_.Collect(sequences, info_));
  if (launch_.rows() == 0) return kernels::OkStatus();
  backend_.EmbedRows(*weights_.embedding, launch_.ids(), stream_->floats());
  for (int i = 0; i < config_.layers; ++i) {
    Attend(weights_.layers[i], i);
    FeedForward(weights_.layers[i]);
  }
  launch_.CopyLastRows(stream_->floats(), config_.hidden, /*offset=*/0,
                       sequences, backend_);
  logits_.Write(sequences, launch_, stream_->floats());
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
