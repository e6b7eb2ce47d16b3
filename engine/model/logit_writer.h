// Computes the logits that a launch's sequences ask for.
#ifndef HOLDFAST_ENGINE_MODEL_LOGIT_WRITER_H_
#define HOLDFAST_ENGINE_MODEL_LOGIT_WRITER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/launch.h"
#include "engine/model/model.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// The end of a model: its final norm, then the head's product.
struct LogitWeights {
  const float* final_norm = nullptr;
  float eps = 0;
  const kernels::Matrix* head = nullptr;
};

class LogitWriter {
 public:
  // `backend` must outlive this and be prepared for the vocabulary.
  kernels::Status Prepare(const LogitWeights& weights, int hidden,
                          int vocab_size, kernels::Backend* backend);

  // `stream`: the launch's rows before the final norm. Allocates nothing.
  void Write(std::span<const SequenceRows> sequences, const Launch& launch,
             const float* stream);
  // Of one row before the final norm, at `hidden`; an error when `logits` is
  // not the vocabulary's size.
  kernels::Status FromHidden(const std::byte* hidden, std::span<float> logits);

 private:
  // What is asked for of a row: its logits, a token chosen from them, or both.
  struct Target {
    float* logits = nullptr;
    const kernels::TokenChoice* choice = nullptr;
    kernels::ChosenToken* chosen = nullptr;
  };

  void Ask(const float* row, const Target& target);
  void Flush();

  kernels::Backend* backend_ = nullptr;
  LogitWeights weights_;
  int hidden_ = 0;
  int vocab_size_ = 0;
  // Rows waiting for their logits, and what becomes of these.
  std::unique_ptr<kernels::Buffer> rows_;
  std::unique_ptr<kernels::Buffer> normed_;
  std::unique_ptr<kernels::Buffer> logits_;
  std::vector<Target> targets_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LOGIT_WRITER_H_
