#include "engine/model/launch.h"

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

kernels::Status CheckSequence(const SequenceRows& sequence,
                              const ModelInfo& info) {
  const auto broken = [](const auto&... what) {
    return kernels::InvalidArgument(Message("forward: ", what...));
  };
  const std::size_t rows = sequence.ids.size();
  if (rows == 0) return broken("a sequence without rows");
  if (sequence.position < 0 || sequence.position > info.max_context ||
      rows > static_cast<std::size_t>(info.max_context - sequence.position)) {
    return broken(rows, " rows from position ", sequence.position,
                  " pass the context of ", info.max_context, " tokens");
  }
  if (sequence.blocks == nullptr || sequence.sections == nullptr) {
    return broken("a sequence without blocks or sections");
  }
  const auto vocab = static_cast<std::size_t>(info.vocab_size);
  if ((!sequence.last_logits.empty() && sequence.last_logits.size() != vocab) ||
      (!sequence.all_logits.empty() &&
       sequence.all_logits.size() != rows * vocab)) {
    return broken("the room for logits does not fit ", rows, " rows of ",
                  vocab);
  }
  for (std::int32_t id : sequence.ids) {
    if (id < 0 || id >= info.vocab_size) {
      return broken("token id ", id, " is not in the vocabulary of ",
                    info.vocab_size);
    }
  }
  return kernels::OkStatus();
}

}  // namespace

void Launch::Reserve(int max_rows) {
  max_rows_ = max_rows;
  ids_.reserve(max_rows);
  spans_.reserve(max_rows);
}

kernels::Status Launch::Collect(std::span<const SequenceRows> sequences,
                                const ModelInfo& info) {
  ids_.clear();
  spans_.clear();
  rows_ = 0;
  for (const SequenceRows& sequence : sequences) {
    HF_RETURN_IF_ERROR(CheckSequence(sequence, info));
    const std::size_t rows = sequence.ids.size();
    if (rows > static_cast<std::size_t>(max_rows_ - rows_)) {
      return kernels::InvalidArgument(
          Message("forward: more rows than the ", max_rows_, " prepared for"));
    }
    kernels::RowSpan span;
    span.blocks = sequence.blocks;
    span.first_row = rows_;
    span.position = sequence.position;
    span.rows = static_cast<int>(rows);
    span.sections = sequence.sections;
    spans_.push_back(span);
    ids_.insert(ids_.end(), sequence.ids.begin(), sequence.ids.end());
    rows_ += span.rows;
  }
  return kernels::OkStatus();
}

void Launch::CopyLastRows(const float* rows, int cols, std::size_t offset,
                          std::span<const SequenceRows> sequences,
                          kernels::Backend& backend) const {
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::size_t last = spans_[s].first_row + spans_[s].rows - 1;
    backend.Copy(rows + last * cols, cols * sizeof(float),
                 sequences[s].sections + offset);
  }
}

}  // namespace holdfast::model
