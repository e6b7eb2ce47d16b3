#include "kernels/host/highway_targets.h"
// After the choice of targets:
#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"

namespace holdfast::kernels {

KernelTables ChooseKernels() {
  // Highway remembers the first choice; tests change the mask in between.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  KernelTables tables;
  tables.product = ChooseProductKernels();
  tables.row = ChooseRowKernels();
  tables.attention = ChooseAttentionKernels();
  tables.gate = ChooseGateKernels();
  tables.gdn = ChooseGdnKernels();
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  // Better targets have lower bits.
  tables.target = hwy::TargetName(usable & -usable);
  return tables;
}

}  // namespace holdfast::kernels
