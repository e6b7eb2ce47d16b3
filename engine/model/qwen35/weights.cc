#include "engine/model/qwen35/weights.h"

#include <cstdint>
#include <string>
#include <utility>

#include "engine/model/message.h"
#include "engine/model/qwen35/layer_loader.h"
#include "engine/model/weight_packer.h"

namespace holdfast::model {
namespace {

using kernels::Status;
using kernels::StatusOr;

class Loader {
 public:
  Loader(const Qwen35Config& config, const Qwen35Names& names,
         TensorMap* tensors, kernels::Backend* backend)
      : config_(config),
        names_(names),
        packer_(tensors, backend),
        layers_(config, names, &packer_) {}

  StatusOr<Qwen35Weights> Load() {
    HF_RETURN_IF_ERROR(LoadEnds());
    for (int i = 0; i < config_.layers; ++i) {
      HF_ASSIGN_OR_RETURN(
          Qwen35Layer layer,
          layers_.Load(Message(names_.layer_prefix, i, "."),
                       config_.attention[i], config_.sparse[i]));
      weights_.layers.push_back(std::move(layer));
    }
    HF_RETURN_IF_ERROR(LoadMtp());
    TensorMap& tensors = packer_.tensors();
    if (!names_.is_gguf) {
      for (const char* tower : {"model.visual.", "visual."}) {
        tensors.IgnorePrefix(tower);
      }
    }
    if (const auto unused = tensors.FirstUnused()) {
      return kernels::InvalidArgument(
          Message(tensors.source(), ": tensor ", *unused, " is not part of a ",
                  config_.architecture, " model with this configuration"));
    }
    weights_.bytes = packer_.bytes();
    return std::move(weights_);
  }

 private:
  Status LoadEnds() {
    const std::int64_t vocab = config_.vocab_size;
    HF_ASSIGN_OR_RETURN(
        weights_.embedding,
        packer_.PackMatrix(names_.embedding, vocab, config_.hidden));
    HF_ASSIGN_OR_RETURN(weights_.final_norm,
                        layers_.LoadNorm(names_.final_norm, config_.hidden));
    if (config_.tied_embeddings) {
      packer_.tensors().Ignore(names_.head);  // a copy that some exports carry
      return kernels::OkStatus();
    }
    HF_ASSIGN_OR_RETURN(weights_.head,
                        packer_.PackMatrix(names_.head, vocab, config_.hidden));
    return kernels::OkStatus();
  }

  Status LoadMtp() {
    if (!packer_.tensors().Has(names_.mtp_fc)) return kernels::OkStatus();
    auto mtp = std::make_unique<Qwen35Mtp>();
    const std::int64_t hidden = config_.hidden;
    HF_ASSIGN_OR_RETURN(mtp->fc,
                        packer_.PackMatrix(names_.mtp_fc, hidden, 2 * hidden));
    HF_ASSIGN_OR_RETURN(mtp->embedding_norm,
                        layers_.LoadNorm(names_.mtp_embedding_norm, hidden));
    HF_ASSIGN_OR_RETURN(mtp->hidden_norm,
                        layers_.LoadNorm(names_.mtp_hidden_norm, hidden));
    HF_ASSIGN_OR_RETURN(mtp->norm, layers_.LoadNorm(names_.mtp_norm, hidden));
    for (int i = names_.first_mtp_layer;; ++i) {
      const std::string prefix = Message(names_.mtp_layer_prefix, i, ".");
      if (!packer_.tensors().Has(prefix + names_.input_norm)) break;
      HF_ASSIGN_OR_RETURN(Qwen35Layer layer,
                          layers_.Load(prefix, /*attention=*/true,
                                       /*sparse=*/config_.has_experts()));
      mtp->layers.push_back(std::move(layer));
    }
    weights_.mtp = std::move(mtp);
    return kernels::OkStatus();
  }

  const Qwen35Config& config_;
  const Qwen35Names& names_;
  WeightPacker packer_;
  Qwen35LayerLoader layers_;
  Qwen35Weights weights_;
};

}  // namespace

StatusOr<Qwen35Weights> LoadQwen35Weights(const Qwen35Config& config,
                                          const Qwen35Names& names,
                                          TensorMap* tensors,
                                          kernels::Backend* backend) {
  return Loader(config, names, tensors, backend).Load();
}

}  // namespace holdfast::model
