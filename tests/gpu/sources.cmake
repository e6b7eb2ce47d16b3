# holdfast-gpu-check: for a device (here) and for the emulation
# (tests/cuda_emulation).
set(HOLDFAST_GPU_CHECKS
  checks.cc
  checks_attention.cc
  checks_gdn.cc
  checks_moe.cc
  checks_products.cc
  checks_rows.cc
  checks_sampling.cc
  checks_sums.cc)
set(HOLDFAST_GPU_CHECK_PROGRAM
  gpu_check_main.cc
  model_checks.cc
  report.cc
  timings.cc)
