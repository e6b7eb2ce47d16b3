#include "kernels/host/moe.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace holdfast::kernels {
namespace {

constexpr int kRowsPerTask = 16;
// Room that the softmax kernel may pad.
constexpr int kScorePadding = 16;

// The ids of the top_k largest, ascending; of equals the lower id. Numbers that
// compare with nothing are as good as any: ids stay valid and distinct.
void ChooseLargest(const float* logits, int experts, int top_k,
                   std::int32_t* ids) {
  int count = 0;
  for (int e = 0; e < experts; ++e) {
    if (count == top_k && !(logits[e] > logits[ids[count - 1]])) continue;
    int at = count < top_k ? count++ : count - 1;
    for (; at > 0 && logits[e] > logits[ids[at - 1]]; --at) {
      ids[at] = ids[at - 1];
    }
    ids[at] = e;
  }
  std::sort(ids, ids + top_k);
}

}  // namespace

Status HostMoe::Prepare(const Limits& limits) {
  const MoeShape& shape = limits.moe;
  if (shape.experts == 0) return OkStatus();
  if (shape.experts < 0 || shape.top_k < 1 || shape.top_k > shape.experts ||
      shape.hidden < 1 || shape.ffn < 1) {
    return InvalidArgument("experts: " + std::to_string(shape.top_k) + " of " +
                           std::to_string(shape.experts) + ", " +
                           std::to_string(shape.hidden) + " wide, " +
                           std::to_string(shape.ffn) + " inside");
  }
  const std::size_t rows = limits.max_rows;
  chosen_.resize(rows * shape.top_k);
  weights_.resize(rows * shape.top_k);
  members_.resize(rows * shape.top_k);
  starts_.resize(shape.experts + 1);
  score_floats_ = shape.experts + kScorePadding;
  const struct {
    HostMemory* memory;
    std::size_t floats;
  } wanted[] = {
      {&scores_, score_floats_ * pool_.threads()},
      {&gathered_, rows * shape.hidden},
      {&wide_, rows * 2 * shape.ffn},
      {&middle_, rows * shape.ffn},
  };
  for (const auto& want : wanted) {
    HF_ASSIGN_OR_RETURN(
        *want.memory,
        HostMemory::Make(want.floats * sizeof(float), "rows of experts"));
  }
  return OkStatus();
}

void HostMoe::Route(const MoeCall& call, int row, float* scores) {
  const MoeShape& shape = call.shape;
  const float* logits =
      call.logits + static_cast<std::int64_t>(row) * call.logits_stride;
  const std::int64_t at = static_cast<std::int64_t>(row) * shape.top_k;
  std::int32_t* ids = chosen_.data() + at;
  float* weights = weights_.data() + at;
  ChooseLargest(logits, shape.experts, shape.top_k, ids);
  std::copy_n(logits, shape.experts, scores);
  const float sum = gates_.router(scores, shape.experts);
  float chosen_sum = 0.0f;
  for (int j = 0; j < shape.top_k; ++j) {
    weights[j] = scores[ids[j]] / sum;
    chosen_sum += weights[j];
  }
  if (!shape.normalise) return;
  for (int j = 0; j < shape.top_k; ++j) weights[j] /= chosen_sum;
}

void HostMoe::Group(const MoeCall& call) {
  const int top_k = call.shape.top_k;
  const std::int64_t count = static_cast<std::int64_t>(call.rows) * top_k;
  std::fill(starts_.begin(), starts_.end(), 0);
  for (std::int64_t i = 0; i < count; ++i) ++starts_[chosen_[i] + 1];
  for (int e = 0; e < call.shape.experts; ++e) starts_[e + 1] += starts_[e];
  // Each expert's start moves to its end, which is the next one's start.
  for (std::int64_t i = 0; i < count; ++i) {
    members_[starts_[chosen_[i]]++] = {static_cast<std::int32_t>(i / top_k),
                                       weights_[i]};
  }
}

void HostMoe::RunExpert(const MoeCall& call, const ExpertWeights& expert,
                        std::span<const Member> members) {
  const int hidden = call.shape.hidden;
  const int ffn = call.shape.ffn;
  const int count = static_cast<int>(members.size());
  const auto for_rows = [&](const auto& body) {
    pool_.For((count + kRowsPerTask - 1) / kRowsPerTask, [&](int task, int) {
      const int end = std::min(count, (task + 1) * kRowsPerTask);
      for (int i = task * kRowsPerTask; i < end; ++i) body(i);
    });
  };
  float* gathered = gathered_.floats();
  for_rows([&](int i) {
    std::memcpy(gathered + static_cast<std::int64_t>(i) * hidden,
                call.x + static_cast<std::int64_t>(members[i].row) * hidden,
                hidden * sizeof(float));
  });
  products_.MatMul(static_cast<const PackedMatrix&>(*expert.gate_up), gathered,
                   count, nullptr, wide_.floats());
  for_rows([&](int i) {
    const float* gate = wide_.floats() + static_cast<std::int64_t>(i) * 2 * ffn;
    row_kernels_.silu_mul(
        gate, gate + ffn, ffn,
        middle_.floats() + static_cast<std::int64_t>(i) * ffn);
  });
  products_.MatMul(static_cast<const PackedMatrix&>(*expert.down),
                   middle_.floats(), count, nullptr, gathered);
  for_rows([&](int i) {
    gates_.add_scaled(
        gathered + static_cast<std::int64_t>(i) * hidden, members[i].weight,
        hidden, call.out + static_cast<std::int64_t>(members[i].row) * hidden);
  });
}

void HostMoe::Run(const MoeCall& call) {
  pool_.For((call.rows + kRowsPerTask - 1) / kRowsPerTask,
            [&](int task, int thread) {
              float* scores = scores_.floats() + thread * score_floats_;
              const int end = std::min(call.rows, (task + 1) * kRowsPerTask);
              for (int r = task * kRowsPerTask; r < end; ++r) {
                Route(call, r, scores);
              }
            });
  Group(call);
  std::memset(
      call.out, 0,
      sizeof(float) * call.rows * static_cast<std::size_t>(call.shape.hidden));
  int start = 0;
  for (int e = 0; e < call.shape.experts; ++e) {
    const int end = starts_[e];
    if (end > start) {
      RunExpert(
          call, call.experts[e],
          {members_.data() + start, static_cast<std::size_t>(end - start)});
    }
    start = end;
  }
}

}  // namespace holdfast::kernels
