// Each operation of the CUDA backend against its twin in kernels/reference, on
// inputs that bf16 holds exactly. Run on a device by holdfast-gpu-check, and
// against the emulation by tests. C++ standard library only.
#ifndef HOLDFAST_TESTS_GPU_CHECKS_H_
#define HOLDFAST_TESTS_GPU_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/reference.h"

namespace holdfast::gpu_check {

// max|a - b| / max|b| of the results.
inline constexpr double kFloatLimit = 1e-4;
inline constexpr double kBf16Limit = 2e-2;

struct CheckResult {
  std::string name;
  double error = 0.0;
  double limit = 0.0;
  std::string problem;  // of the backend; empty: none
  bool ok() const { return problem.empty() && error <= limit; }
};

// The same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t Bits();
  int Below(int bound) { return static_cast<int>(Bits() % bound); }
  float Uniform();  // in [-1, 1), held by bf16
  std::vector<float> Floats(std::size_t count, float scale = 1.0f);

 private:
  std::uint64_t state_;
};

// A weight with its bytes: every bit pattern of its type, but finite and small.
struct OwnedTensor {
  std::vector<std::byte> bytes;
  kernels::WeightTensor tensor;
};
OwnedTensor RandomTensor(Random& random, kernels::WeightType type, int rows,
                         int cols);

// Runs checks and keeps what they found. `digest` covers every byte that came
// back from the backend: equal for equal runs.
class Checker {
 public:
  explicit Checker(kernels::CudaBackend& backend) : backend_(backend) {}

  kernels::CudaBackend& backend() { return backend_; }
  // Device memory with these numbers; lives as long as this.
  float* Upload(std::span<const float> numbers);
  std::byte* Allocate(std::size_t bytes);
  void Fill(std::byte* to, std::size_t bytes, std::uint32_t pattern);
  std::vector<float> Download(const float* from, std::size_t count);
  std::vector<std::byte> DownloadBytes(const void* from, std::size_t bytes);
  // Bytes that came back otherwise.
  void Digest(const void* from, std::size_t bytes);
  // Remembers a problem of the check at hand.
  void Expect(const kernels::Status& status);

  // Ends the check at hand.
  void Compare(const std::string& name, std::span<const float> got,
               const kernels::reference::Numbers& want, double limit);
  // Frees what Upload and Allocate made.
  void Release() { buffers_.clear(); }

  const std::vector<CheckResult>& results() const { return results_; }
  std::uint64_t digest() const { return digest_; }

 private:
  kernels::CudaBackend& backend_;
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
  std::vector<CheckResult> results_;
  std::string problem_;
  std::uint64_t digest_ = 1469598103934665603u;
};

// Each prepares the backend for itself.
void CheckRows(Checker& checker);
void CheckProducts(Checker& checker);
void CheckAttention(Checker& checker);
void CheckPool(Checker& checker);
void CheckGatedDeltaNet(Checker& checker);
void CheckExperts(Checker& checker);
void CheckContentSums(Checker& checker);
void CheckSampling(Checker& checker);

void RunAllChecks(Checker& checker);

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_CHECKS_H_
