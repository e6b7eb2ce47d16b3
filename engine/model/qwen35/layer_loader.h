// Loads the layers of a Qwen3.5-family model.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_LAYER_LOADER_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_LAYER_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/qwen35/config.h"
#include "engine/model/qwen35/head_order.h"
#include "engine/model/qwen35/names.h"
#include "engine/model/qwen35/weights.h"
#include "engine/model/weight_packer.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// All arguments must outlive this. Errors name file and tensor.
class Qwen35LayerLoader {
 public:
  Qwen35LayerLoader(const Qwen35Config& config, const Qwen35Names& names,
                    WeightPacker* packer);

  // `prefix` stands before the names of the layer's tensors.
  kernels::StatusOr<Qwen35Layer> Load(const std::string& prefix, bool attention,
                                      bool sparse);
  // A norm's weights, as the arithmetic takes them.
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> LoadNorm(
      const std::string& name, std::int64_t size);

 private:
  kernels::StatusOr<std::unique_ptr<Qwen35Attention>> LoadAttention(
      const std::string& prefix);
  kernels::StatusOr<std::unique_ptr<Qwen35Gdn>> LoadGdn(
      const std::string& prefix);
  kernels::Status LoadGdnInput(const std::string& prefix, Qwen35Gdn* gdn);
  kernels::Status LoadGdnVectors(const std::string& prefix, Qwen35Gdn* gdn);
  kernels::StatusOr<Qwen35FeedForward> LoadFeedForward(const std::string& gate,
                                                       const std::string& up,
                                                       const std::string& down,
                                                       std::int64_t ffn);
  kernels::StatusOr<std::unique_ptr<Qwen35Experts>> LoadExperts(
      const std::string& prefix);
  kernels::Status LoadStackedExperts(const std::string& prefix,
                                     Qwen35Experts* experts);
  kernels::Status LoadRouter(const std::string& prefix, Qwen35Experts* experts);
  // The numbers of a tensor of this shape, in `order` of its rows.
  kernels::StatusOr<std::vector<float>> Floats(
      const std::string& name, std::vector<std::int64_t> shape,
      const std::vector<std::int32_t>& order);

  const Qwen35Config& config_;
  const Qwen35Names& names_;
  WeightPacker& packer_;
  const GdnRowOrders orders_;
  const std::vector<std::int32_t> query_gate_order_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_LAYER_LOADER_H_
