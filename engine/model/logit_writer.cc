#include "engine/model/logit_writer.h"

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

// Rows whose logits are computed at a time: enough that the head's weights are
// not read once a row, few enough that the buffer stays small.
constexpr int kLogitRows = 16;

}  // namespace

kernels::Status LogitWriter::Prepare(const LogitWeights& weights, int hidden,
                                     int vocab_size,
                                     kernels::Backend* backend) {
  backend_ = backend;
  weights_ = weights;
  hidden_ = hidden;
  vocab_size_ = vocab_size;
  targets_.reserve(kLogitRows);
  const auto allocate = [&](int cols) {
    return backend->Allocate(std::size_t{kLogitRows} * cols * sizeof(float));
  };
  HF_ASSIGN_OR_RETURN(rows_, allocate(hidden));
  HF_ASSIGN_OR_RETURN(normed_, allocate(hidden));
  HF_ASSIGN_OR_RETURN(logits_, allocate(vocab_size));
  return kernels::OkStatus();
}

void LogitWriter::Ask(const float* row, const Target& target) {
  const std::size_t hidden = hidden_;
  backend_->Copy(row, hidden * sizeof(float),
                 rows_->floats() + targets_.size() * hidden);
  targets_.push_back(target);
  if (targets_.size() == kLogitRows) Flush();
}

void LogitWriter::Flush() {
  const int rows = static_cast<int>(targets_.size());
  if (rows == 0) return;
  backend_->RmsNorm(rows_->floats(), weights_.final_norm, weights_.eps, rows,
                    hidden_, normed_->floats());
  backend_->MatMul(*weights_.head, normed_->floats(), rows, nullptr,
                   logits_->floats());
  const std::size_t vocab = vocab_size_;
  for (int i = 0; i < rows; ++i) {
    const float* const logits = logits_->floats() + i * vocab;
    const Target& target = targets_[i];
    if (target.logits != nullptr) {
      backend_->Read(logits, vocab * sizeof(float), target.logits);
    }
    if (target.choice != nullptr) {
      backend_->ChooseToken(logits, vocab_size_, *target.choice, target.chosen);
    }
  }
  targets_.clear();
}

void LogitWriter::Write(std::span<const SequenceRows> sequences,
                        const Launch& launch, const float* stream) {
  const std::size_t vocab = vocab_size_;
  targets_.clear();
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    const kernels::RowSpan& span = launch.spans()[s];
    const float* first =
        stream + static_cast<std::size_t>(span.first_row) * hidden_;
    if (!sequence.all_logits.empty()) {
      for (int i = 0; i < span.rows; ++i) {
        Ask(first + static_cast<std::size_t>(i) * hidden_,
            {.logits = sequence.all_logits.data() + i * vocab});
      }
    }
    if (!sequence.last_logits.empty() || sequence.choice != nullptr) {
      Ask(first + static_cast<std::size_t>(span.rows - 1) * hidden_,
          {.logits = sequence.last_logits.empty() ? nullptr
                                                  : sequence.last_logits.data(),
           .choice = sequence.choice,
           .chosen = sequence.chosen});
    }
  }
  Flush();
}

kernels::Status LogitWriter::FromHidden(const std::byte* hidden,
                                        std::span<float> logits) {
  if (logits.size() != static_cast<std::size_t>(vocab_size_)) {
    return kernels::InvalidArgument(Message("logits: room for ", logits.size(),
                                            " of ", vocab_size_, " numbers"));
  }
  targets_.clear();
  Ask(reinterpret_cast<const float*>(hidden), {.logits = logits.data()});
  Flush();
  return backend_->Synchronize();
}

}  // namespace holdfast::model
