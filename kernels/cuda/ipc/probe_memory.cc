#include "kernels/cuda/ipc/probe_memory.h"

#include <span>
#include <string>

namespace holdfast::kernels::cuda {
namespace {

std::uint64_t Sum(const std::vector<std::uint64_t>& words) {
  std::uint64_t sum = 14695981039346656037u;
  for (const std::uint64_t word : words) sum = (sum ^ word) * 1099511628211u;
  return sum;
}

}  // namespace

std::vector<std::uint64_t> Pattern(std::uint64_t seed) {
  std::vector<std::uint64_t> words(kProbeBytes / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    word = seed;
  }
  return words;
}

Status WritePattern(std::uint64_t seed, std::byte* memory) {
  const auto words = Pattern(seed);
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(memory, words.data(), kProbeBytes, cudaMemcpyHostToDevice),
      "writing device memory");
  HF_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "writing device memory");
  return OkStatus();
}

StatusOr<DeviceMemory> PatternMemory(std::uint64_t seed) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(kProbeBytes, "the arena probe"));
  HF_RETURN_IF_ERROR(WritePattern(seed, memory.data()));
  return memory;
}

StatusOr<std::uint64_t> SumOfDevice(const std::byte* memory) {
  std::vector<std::uint64_t> words(kProbeBytes / sizeof(std::uint64_t));
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(words.data(), memory, kProbeBytes, cudaMemcpyDeviceToHost),
      "reading device memory");
  return Sum(words);
}

StatusOr<std::uint64_t> SumOfPool(ImportedPool& pool) {
  std::vector<std::uint64_t> words(kProbeBytes / sizeof(std::uint64_t));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(words));
  // In two parts: the second half does not begin at the handle's base.
  const ImportedPool::Part parts[] = {
      {0, bytes.first(kProbeBytes / 2)},
      {kProbeBytes / 2, bytes.subspan(kProbeBytes / 2)}};
  HF_RETURN_IF_ERROR(pool.Copy(parts));
  return Sum(words);
}

Status ExpectSum(std::uint64_t got, std::uint64_t seed, const char* who) {
  if (got == Sum(Pattern(seed))) return OkStatus();
  return DataLoss(std::string(who) + " read other bytes than were written");
}

}  // namespace holdfast::kernels::cuda
