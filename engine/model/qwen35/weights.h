// The weights of a Qwen3.5-family model, packed by a backend.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_WEIGHTS_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/model/qwen35/config.h"
#include "engine/model/qwen35/names.h"
#include "engine/model/tensors.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// Of gated attention: the input product gives rows [q | gate | k | v].
struct Qwen35Attention {
  std::unique_ptr<kernels::Matrix> input;
  std::unique_ptr<kernels::Buffer> q_norm;
  std::unique_ptr<kernels::Buffer> k_norm;
  std::unique_ptr<kernels::Matrix> output;
};

// Of a gated delta net: the input product gives rows [q | k | v | z | b | a],
// value heads tiled (head_order.h).
struct Qwen35Gdn {
  std::unique_ptr<kernels::Matrix> input;
  std::unique_ptr<kernels::Buffer> conv;  // [tap][channel]
  std::unique_ptr<kernels::Buffer> decay_rate;
  std::unique_ptr<kernels::Buffer> dt_bias;
  std::unique_ptr<kernels::Buffer> norm;
  std::unique_ptr<kernels::Matrix> output;
};

struct Qwen35FeedForward {
  std::unique_ptr<kernels::Matrix> gate_up;
  std::unique_ptr<kernels::Matrix> down;
};

struct Qwen35Experts {
  // The experts' rows, then the shared expert's gate.
  std::unique_ptr<kernels::Matrix> router;
  std::vector<Qwen35FeedForward> experts;
  std::vector<kernels::ExpertWeights> views;  // of `experts`
  Qwen35FeedForward shared;
};

struct Qwen35Layer {
  std::unique_ptr<kernels::Buffer> input_norm;
  std::unique_ptr<Qwen35Attention> attention;  // one of these two is null
  std::unique_ptr<Qwen35Gdn> gdn;
  std::unique_ptr<kernels::Buffer> post_norm;
  std::unique_ptr<Qwen35Experts> experts;  // null: dense
  Qwen35FeedForward dense;
};

// The drafting head: a product of [embedding | hidden], attention layers, and
// the model's own head.
struct Qwen35Mtp {
  std::unique_ptr<kernels::Matrix> fc;
  std::unique_ptr<kernels::Buffer> embedding_norm;
  std::unique_ptr<kernels::Buffer> hidden_norm;
  std::unique_ptr<kernels::Buffer> norm;
  std::vector<Qwen35Layer> layers;
};

struct Qwen35Weights {
  std::unique_ptr<kernels::Matrix> embedding;
  std::unique_ptr<kernels::Matrix> head;  // null: the embedding serves
  std::unique_ptr<kernels::Buffer> final_norm;
  std::vector<Qwen35Layer> layers;
  std::unique_ptr<Qwen35Mtp> mtp;  // null: the files have none
  std::size_t bytes = 0;           // packed
};

// Packs every tensor that the configuration asks for, and the drafting head's
// when they are there; passes over a vision tower's. A missing tensor, one of
// another shape or a type it cannot have, one that holds NaN or infinity, and
// one that no part of the model asks for are errors that name file and tensor.
kernels::StatusOr<Qwen35Weights> LoadQwen35Weights(const Qwen35Config& config,
                                                   const Qwen35Names& names,
                                                   TensorMap* tensors,
                                                   kernels::Backend* backend);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_WEIGHTS_H_
