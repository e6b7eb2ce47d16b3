// Routed experts: each row's experts are chosen, rows are gathered for each
// expert in turn, ids ascending, and their results added to the rows' sums. A
// row's result does not depend on which rows share an expert with it.
#ifndef HOLDFAST_KERNELS_HOST_MOE_H_
#define HOLDFAST_KERNELS_HOST_MOE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/memory.h"
#include "kernels/host/products.h"
#include "kernels/host/thread_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels {

// The arguments of Backend::MoeExperts.
struct MoeCall {
  MoeShape shape;
  std::span<const ExpertWeights> experts;
  const float* logits = nullptr;
  int logits_stride = 0;
  const float* x = nullptr;
  int rows = 0;
  float* out = nullptr;
};

class HostMoe {
 public:
  HostMoe(const GateKernels& gates, const RowKernels& row_kernels,
          HostProducts& products, ThreadPool& pool)
      : gates_(gates),
        row_kernels_(row_kernels),
        products_(products),
        pool_(pool) {}

  // Scratch for the largest call.
  Status Prepare(const Limits& limits);

  void Run(const MoeCall& call);

 private:
  // A row among those of one expert.
  struct Member {
    std::int32_t row = 0;
    float weight = 0.0f;
  };

  // Writes the row's experts, ids ascending, and their weights.
  void Route(const MoeCall& call, int row, float* scores);
  // Fills members_ and starts_ from every row's choice.
  void Group(const MoeCall& call);
  void RunExpert(const MoeCall& call, const ExpertWeights& expert,
                 std::span<const Member> members);

  const GateKernels& gates_;
  const RowKernels& row_kernels_;
  HostProducts& products_;
  ThreadPool& pool_;
  std::vector<std::int32_t> chosen_;  // [row][top_k]
  std::vector<float> weights_;        // [row][top_k]
  std::vector<Member> members_;       // of each expert, rows ascending
  std::vector<std::int32_t> starts_;  // of each expert in members_
  std::size_t score_floats_ = 0;      // of each thread in scores_
  HostMemory scores_;
  HostMemory gathered_;  // rows of hidden: inputs, then results
  HostMemory wide_;      // rows of 2 ffn
  HostMemory middle_;    // rows of ffn
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_MOE_H_
