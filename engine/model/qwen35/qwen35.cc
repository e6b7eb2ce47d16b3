#include "engine/model/qwen35/qwen35.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "engine/model/launch.h"
#include "engine/model/logit_writer.h"
#include "engine/model/qwen35/layout.h"

namespace holdfast::model {
namespace {

using kernels::Buffer;
using kernels::Status;

class Qwen35 final : public Model {
 public:
  Qwen35(const Qwen35Config& config, Qwen35Weights weights,
         kernels::StateType state_type, kernels::Backend* backend)
      : config_(config),
        weights_(std::move(weights)),
        layout_(MakeQwen35Layout(config, state_type)),
        backend_(*backend) {}

  Status Prepare(std::string name, int max_rows);

  const ModelInfo& info() const override { return info_; }
  const CacheLayout& layout() const override { return layout_.cache; }
  const kernels::KvShape& kv_shape() const override { return layout_.kv; }
  void SetGrid(std::uint32_t tokens) override {
    layout_.cache.grid_tokens = tokens;
  }
  Status Forward(std::span<const SequenceRows> sequences) override;
  Status LogitsFromHidden(const std::byte* sections,
                          std::span<float> logits) override {
    return logits_.FromHidden(sections + layout_.h_last_offset, logits);
  }

 private:
  int q_width() const { return config_.heads * config_.head_dim; }
  int kv_width() const { return config_.kv_heads * config_.head_dim; }
  // Of attention's input product.
  int attention_width() const { return 2 * (q_width() + kv_width()); }
  int router_width() const { return config_.experts + 1; }
  kernels::MoeShape moe_shape() const;
  kernels::Limits MakeLimits(int max_rows) const;

  void Describe(std::string name);
  Status AllocateBuffers(int max_rows);
  void Attend(const Qwen35Attention& attention, int index);
  void RunGdn(const Qwen35Gdn& gdn, int index);
  void RunDense(const Qwen35FeedForward& weights, int ffn, float* out);
  void RunExperts(const Qwen35Experts& experts);
  void RunLayer(const Qwen35Layer& layer, int attention_index, int gdn_index);

  Qwen35Config config_;
  Qwen35Weights weights_;
  Qwen35Layout layout_;
  kernels::Backend& backend_;
  ModelInfo info_;
  std::unique_ptr<kernels::RopeTable> rope_;
  float attention_scale_ = 0;

  // Of one launch. Buffers hold a row of the width named for each of its rows.
  Launch launch_;
  LogitWriter logits_;
  std::unique_ptr<Buffer> stream_;  // hidden: the residual stream
  std::unique_ptr<Buffer> normed_;  // hidden
  std::unique_ptr<Buffer> wide_;    // what an input product gives
  std::unique_ptr<Buffer> middle_;  // what an output product takes
  std::unique_ptr<Buffer> added_;   // hidden: what goes to the stream
  std::unique_ptr<Buffer> shared_;  // hidden: the shared expert's part
  std::unique_ptr<Buffer> router_;  // logits of the experts, the shared gate
};

kernels::MoeShape Qwen35::moe_shape() const {
  kernels::MoeShape shape;
  shape.experts = config_.experts;
  shape.top_k = config_.top_k;
  shape.normalise = config_.normalise_top_k;
  shape.hidden = config_.hidden;
  shape.ffn = config_.expert_ffn;
  return shape;
}

kernels::Limits Qwen35::MakeLimits(int max_rows) const {
  kernels::Limits limits;
  limits.max_rows = max_rows;
  limits.max_cols =
      std::max({config_.hidden, q_width(), attention_width(),
                layout_.gdn.ProjectedWidth(), layout_.gdn.ValueWidth(),
                2 * config_.ffn, 2 * config_.shared_ffn, router_width()});
  limits.max_vocab = config_.vocab_size;
  limits.max_heads = config_.heads;
  limits.max_head_dim = config_.head_dim;
  limits.max_positions = config_.max_context;
  limits.gdn = layout_.gdn;
  if (config_.has_experts()) limits.moe = moe_shape();
  return limits;
}

void Qwen35::Describe(std::string name) {
  info_.name = std::move(name);
  info_.architecture = config_.architecture;
  info_.vocab_size = config_.vocab_size;
  info_.max_context = config_.max_context;
  info_.layers = config_.layers;
  info_.hidden = config_.hidden;
  info_.config_digest_input = Qwen35ConfigText(config_);
  info_.weight_bytes = weights_.bytes;
}

Status Qwen35::Prepare(std::string name, int max_rows) {
  Describe(std::move(name));
  // As the reference has it: the power is taken in double.
  attention_scale_ = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  HF_RETURN_IF_ERROR(backend_.Prepare(MakeLimits(max_rows)));
  const std::vector<float> frequencies =
      InverseFrequencies(config_.rope, config_.rotary_dims, {});
  HF_ASSIGN_OR_RETURN(rope_,
                      backend_.MakeRopeTable(frequencies, config_.max_context));
  return AllocateBuffers(max_rows);
}

Status Qwen35::AllocateBuffers(int max_rows) {
  launch_.Reserve(max_rows);
  const int hidden = config_.hidden;
  const int ffn = std::max(config_.ffn, config_.shared_ffn);
  const struct {
    std::unique_ptr<Buffer>* buffer;
    int cols;
  } wanted[] = {
      {&stream_, hidden},
      {&normed_, hidden},
      {&wide_,
       std::max({attention_width(), layout_.gdn.ProjectedWidth(), 2 * ffn})},
      {&middle_, std::max({q_width(), layout_.gdn.ValueWidth(), ffn})},
      {&added_, hidden},
      {&shared_, config_.has_experts() ? hidden : 0},
      {&router_, config_.has_experts() ? router_width() : 0},
  };
  for (const auto& want : wanted) {
    if (want.cols == 0) continue;
    HF_ASSIGN_OR_RETURN(*want.buffer,
                        backend_.Allocate(static_cast<std::size_t>(max_rows) *
                                          want.cols * sizeof(float)));
  }
  const kernels::Matrix* head =
      weights_.head != nullptr ? weights_.head.get() : weights_.embedding.get();
  return logits_.Prepare({weights_.final_norm->floats(), config_.rms_eps, head},
                         hidden, config_.vocab_size, &backend_);
}

// normed_ to added_, and likewise below.
void Qwen35::Attend(const Qwen35Attention& attention, int index) {
  const int rows = launch_.rows();
  const auto spans = launch_.spans();
  const int stride = attention_width();
  float* q = wide_->floats();
  float* gate = q + q_width();
  float* k = gate + q_width();
  float* v = k + kv_width();
  float* attended = middle_->floats();
  backend_.MatMul(*attention.input, normed_->floats(), rows, nullptr, q);
  backend_.HeadNorm(q, attention.q_norm->floats(), config_.rms_eps, rows,
                    stride, config_.heads, config_.head_dim);
  backend_.HeadNorm(k, attention.k_norm->floats(), config_.rms_eps, rows,
                    stride, config_.kv_heads, config_.head_dim);
  backend_.Rope(q, stride, config_.heads, config_.head_dim, *rope_, spans);
  backend_.Rope(k, stride, config_.kv_heads, config_.head_dim, *rope_, spans);
  backend_.StoreKv(layout_.kv, index, k, v, stride, spans);
  backend_.Attention(layout_.kv, index, q, stride, config_.heads,
                     attention_scale_, spans, attended);
  backend_.SigmoidMul(attended, gate, stride, rows, q_width());
  backend_.MatMul(*attention.output, attended, rows, nullptr, added_->floats());
}

void Qwen35::RunGdn(const Qwen35Gdn& gdn, int index) {
  const int rows = launch_.rows();
  kernels::GdnWeights weights;
  weights.conv = gdn.conv->floats();
  weights.decay_rate = gdn.decay_rate->floats();
  weights.dt_bias = gdn.dt_bias->floats();
  weights.norm = gdn.norm->floats();
  weights.norm_eps = config_.rms_eps;
  backend_.MatMul(*gdn.input, normed_->floats(), rows, nullptr,
                  wide_->floats());
  backend_.GatedDeltaNet(layout_.gdn, weights, layout_.Place(index),
                         wide_->floats(), layout_.gdn.ProjectedWidth(),
                         launch_.spans(), middle_->floats());
  backend_.MatMul(*gdn.output, middle_->floats(), rows, nullptr,
                  added_->floats());
}

void Qwen35::RunDense(const Qwen35FeedForward& weights, int ffn, float* out) {
  const int rows = launch_.rows();
  backend_.MatMul(*weights.gate_up, normed_->floats(), rows, nullptr,
                  wide_->floats());
  backend_.SiluMul(wide_->floats(), rows, ffn, middle_->floats());
  backend_.MatMul(*weights.down, middle_->floats(), rows, nullptr, out);
}

void Qwen35::RunExperts(const Qwen35Experts& experts) {
  const int rows = launch_.rows();
  float* logits = router_->floats();
  backend_.MatMul(*experts.router, normed_->floats(), rows, nullptr, logits);
  backend_.MoeExperts(moe_shape(), experts.views, logits, router_width(),
                      normed_->floats(), rows, added_->floats());
  RunDense(experts.shared, config_.shared_ffn, shared_->floats());
  backend_.AddGated(added_->floats(), shared_->floats(),
                    logits + config_.experts, router_width(), rows,
                    config_.hidden);
}

void Qwen35::RunLayer(const Qwen35Layer& layer, int attention_index,
                      int gdn_index) {
  const int rows = launch_.rows();
  float* stream = stream_->floats();
  backend_.RmsNorm(stream, layer.input_norm->floats(), config_.rms_eps, rows,
                   config_.hidden, normed_->floats());
  if (layer.attention != nullptr) {
    Attend(*layer.attention, attention_index);
  } else {
    RunGdn(*layer.gdn, gdn_index);
  }
  backend_.Add(stream, added_->floats(), rows, config_.hidden);
  backend_.RmsNorm(stream, layer.post_norm->floats(), config_.rms_eps, rows,
                   config_.hidden, normed_->floats());
  if (layer.experts != nullptr) {
    RunExperts(*layer.experts);
  } else {
    RunDense(layer.dense, config_.ffn, added_->floats());
  }
  backend_.Add(stream, added_->floats(), rows, config_.hidden);
}

Status Qwen35::Forward(std::span<const SequenceRows> sequences) {
  HF_RETURN_IF_ERROR(launch_.Collect(sequences, info_));
  if (launch_.rows() == 0) return kernels::OkStatus();
  backend_.EmbedRows(*weights_.embedding, launch_.ids(), stream_->floats());
  int attention_index = 0, gdn_index = 0;
  for (const Qwen35Layer& layer : weights_.layers) {
    RunLayer(layer, attention_index, gdn_index);
    (layer.attention != nullptr ? attention_index : gdn_index) += 1;
  }
  launch_.CopyLastRows(stream_->floats(), config_.hidden, layout_.h_last_offset,
                       sequences, backend_);
  logits_.Write(sequences, launch_, stream_->floats());
  return backend_.Synchronize();
}

}  // namespace

kernels::StatusOr<std::unique_ptr<Model>> MakeQwen35(
    std::string name, const Qwen35Config& config, Qwen35Weights weights,
    kernels::StateType state_type, int max_rows, kernels::Backend* backend) {
  auto model =
      std::make_unique<Qwen35>(config, std::move(weights), state_type, backend);
  HF_RETURN_IF_ERROR(model->Prepare(std::move(name), max_rows));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace holdfast::model
