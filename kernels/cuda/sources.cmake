# The CUDA backend's sources: compiled by nvcc (kernels/cuda) and as ordinary
# C++ against the emulation (tests/cuda_emulation).
set(HOLDFAST_CUDA_KERNELS
  attention_decode.cu
  attention_plain.cu
  attention_prefill.cu
  content_sum.cu
  gdn.cu
  kv_rows.cu
  moe_products.cu
  moe_routing.cu
  products.cu
  rows.cu)
set(HOLDFAST_CUDA_HOST
  cuda_backend.cc
  cuda_matrix.cc
  device_memory.cc
  expert_tables.cc
  gemm.cc
  ipc/arena_probe.cc
  ipc/device_facts.cc
  ipc/ipc_memory.cc
  launch_tables.cc)
