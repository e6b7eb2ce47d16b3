// Memory of the backend, and its life.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/gdn.h"
#include "kernels/host/rope_table.h"

namespace holdfast::kernels {
namespace cuda {
namespace {

constexpr int kArithmeticRevision = 1;
// Of packed rows, and of what is written, on their way to the device.
constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
// Of what is read: a row of logits and more. What does not fit goes straight to
// where it belongs.
constexpr std::size_t kArrivingBytes = std::size_t{2} << 20;
constexpr std::size_t kArrivalAlignment = 64;
// Of weights widened to bf16 for one product, at most; larger ones go in
// pieces.
constexpr std::size_t kWidenedBytes = std::size_t{256} << 20;
// Of attention's partial results in decode, at most, but at least one
// sequence's.
constexpr std::size_t kPartialBytes = std::size_t{32} << 20;

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(DeviceMemory memory, std::shared_ptr<std::size_t> total)
      : memory_(std::move(memory)), total_(std::move(total)) {
    data_ = memory_.data();
    bytes_ = memory_.bytes();
    *total_ += bytes_;
  }
  ~DeviceBuffer() override { *total_ -= bytes_; }

 private:
  DeviceMemory memory_;
  const std::shared_ptr<std::size_t> total_;
};

StatusOr<DeviceMemory> UploadFloats(std::span<const float> numbers,
                                    std::string_view what) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(numbers.size_bytes(), what));
  HF_RETURN_IF_ERROR(
      CopyToDevice(memory.data(), numbers.data(), numbers.size_bytes(), what));
  return memory;
}

// The largest matrix.
std::size_t WidenedBytes(const Limits& limits) {
  const auto outputs =
      static_cast<std::size_t>(std::max(limits.max_cols, limits.max_vocab));
  const std::size_t bytes =
      2 * PaddedCols(limits.max_cols) *
      ((outputs + kPieceColumns - 1) / kPieceColumns * kPieceColumns);
  return std::min(kWidenedBytes, bytes);
}

// Every row a sequence of its own.
std::size_t PartialBytes(const Limits& limits) {
  const auto of = [&limits](int spans) {
    return DecodePartialBytes(spans, limits.max_heads, limits.max_head_dim,
                              limits.max_positions);
  };
  return std::max(of(1), std::min(kPartialBytes, of(limits.max_rows)));
}

}  // namespace

Status BackendImpl::Prepare(const Limits& limits) {
  if (limits.max_head_dim > 0 && limits.max_head_dim > 256) {
    return Unimplemented("CUDA backend: heads of " +
                         std::to_string(limits.max_head_dim) + " dims");
  }
  const auto rows = static_cast<std::size_t>(limits.max_rows);
  HF_ASSIGN_OR_RETURN(
      LaunchTables tables,
      LaunchTables::Make(stream_.get(), limits.max_rows, limits.max_positions));
  tables_.emplace(std::move(tables));
  HF_ASSIGN_OR_RETURN(gemm_, Gemm::Make(stream_.get(), limits.max_rows));
  choices_ = 0;
  HF_ASSIGN_OR_RETURN(narrow_,
                      DeviceMemory::Make(rows * PaddedCols(limits.max_cols) * 2,
                                         "activations of a product"));
  HF_ASSIGN_OR_RETURN(
      widened_, DeviceMemory::Make(WidenedBytes(limits), "widened weights"));
  HF_ASSIGN_OR_RETURN(
      partial_,
      DeviceMemory::Make(PartialBytes(limits), "attention's partial results"));
  if (limits.gdn.value_heads > 0 || limits.gdn.key_heads > 0) {
    if (const char* why = GdnRefusal(limits.gdn); why != nullptr) {
      return Unimplemented(std::string("CUDA backend: gated delta net: ") +
                           why);
    }
    HF_ASSIGN_OR_RETURN(
        gdn_, DeviceMemory::Make(
                  GdnScratchFloats(limits.gdn, limits.max_rows) * sizeof(float),
                  "gated delta nets"));
  }
  if (limits.moe.experts > 0) {
    if (limits.moe.top_k < 1 || limits.moe.top_k > kMostTopK ||
        limits.moe.top_k > limits.moe.experts) {
      return Unimplemented("CUDA backend: " + std::to_string(limits.moe.top_k) +
                           " of " + std::to_string(limits.moe.experts) +
                           " experts a row");
    }
    HF_ASSIGN_OR_RETURN(
        routing_, DeviceMemory::Make(RoutingBytes(limits.moe, limits.max_rows),
                                     "routing"));
    const std::size_t floats = 3 * limits.moe.ffn + limits.moe.hidden;
    HF_ASSIGN_OR_RETURN(pairs_, DeviceMemory::Make(rows * limits.moe.top_k *
                                                       floats * sizeof(float),
                                                   "experts' rows"));
  }
  HF_ASSIGN_OR_RETURN(results_, DeviceMemory::Make(1 << 20, "content sums"));
  HF_RETURN_IF_ERROR(PrepareChoices(limits.max_vocab));
  limits_ = limits;
  return OkStatus();
}

StatusOr<std::unique_ptr<Buffer>> BackendImpl::Allocate(std::size_t bytes) {
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      DeviceMemory::Make(bytes, "a buffer"));
  return std::unique_ptr<Buffer>(new DeviceBuffer(std::move(memory), buffers_));
}

StatusOr<std::unique_ptr<Matrix>> BackendImpl::PackMatrix(
    std::span<const WeightTensor> parts) {
  HF_ASSIGN_OR_RETURN(auto matrix,
                      CudaMatrix::Pack(parts, staging_, pool_, weights_));
  return std::unique_ptr<Matrix>(std::move(matrix));
}

StatusOr<std::unique_ptr<Buffer>> BackendImpl::UploadVector(
    const WeightTensor& tensor) {
  HF_ASSIGN_OR_RETURN(const std::vector<float> numbers, WidenVector(tensor));
  HF_ASSIGN_OR_RETURN(DeviceMemory memory,
                      UploadFloats(numbers, "vector " + tensor.name));
  return std::unique_ptr<Buffer>(new DeviceBuffer(std::move(memory), buffers_));
}

StatusOr<std::unique_ptr<RopeTable>> BackendImpl::MakeRopeTable(
    std::span<const float> inverse_frequencies, int max_positions) {
  HF_ASSIGN_OR_RETURN(const auto host,
                      HostRopeTable::Make(inverse_frequencies, max_positions));
  const std::size_t half = inverse_frequencies.size();
  std::vector<float> cos(half * max_positions);
  std::vector<float> sin(half * max_positions);
  for (int p = 0; p < max_positions; ++p) {
    std::copy_n(host->cos(p), half, &cos[p * half]);
    std::copy_n(host->sin(p), half, &sin[p * half]);
  }
  HF_ASSIGN_OR_RETURN(DeviceMemory cosines, UploadFloats(cos, "cosines"));
  HF_ASSIGN_OR_RETURN(DeviceMemory sines, UploadFloats(sin, "sines"));
  rope_bytes_ += cosines.bytes() + sines.bytes();
  return std::unique_ptr<RopeTable>(
      new DeviceRopeTable(std::move(cosines), std::move(sines),
                          host->rotary_dims(), max_positions));
}

void BackendImpl::Read(const void* from, std::size_t bytes, void* to) {
  void* target = to;
  if (bytes <= arriving_.bytes() - arriving_bytes_) {
    std::byte* const place = arriving_.data() + arriving_bytes_;
    arrivals_.push_back({place, bytes, to});
    arriving_bytes_ += std::min(
        (bytes + kArrivalAlignment - 1) / kArrivalAlignment * kArrivalAlignment,
        arriving_.bytes() - arriving_bytes_);
    target = place;
  }
  Note(cudaMemcpyAsync(target, from, bytes, cudaMemcpyDeviceToHost,
                       stream_.get()),
       "Read");
}

Status BackendImpl::Synchronize() {
  Note(cudaStreamSynchronize(stream_.get()), "the device");
  // What was refused is over; what fails once more stays.
  if (!error_.ok() && cudaStreamSynchronize(stream_.get()) != cudaSuccess) {
    lost_ = true;
  }
  if (error_.ok()) {
    for (const Arrival& one : arrivals_) {
      std::memcpy(one.to, one.from, one.bytes);
    }
  }
  arrivals_.clear();
  arriving_bytes_ = 0;
  return std::exchange(error_, OkStatus());
}

Status BackendImpl::Write(const void* from, std::size_t bytes, void* to) {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t run = std::min(bytes - at, staging_.bytes());
    std::memcpy(staging_.data(), static_cast<const std::byte*>(from) + at, run);
    HF_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + at, staging_.data(), run,
                        cudaMemcpyHostToDevice, stream_.get()),
        "writing to the device");
    HF_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_.get()),
                            "writing to the device");
    at += run;
  }
  return OkStatus();
}

std::vector<MemoryUse> BackendImpl::memory() const {
  return {
      {"block tables", tables_.has_value() ? tables_->device_bytes() : 0},
      {"products' workspace", gemm_ == nullptr ? 0 : gemm_->workspace_bytes()},
      {"activations of a product", narrow_.bytes()},
      {"widened weights", widened_.bytes()},
      {"attention's partial results", partial_.bytes()},
      {"gated delta nets", gdn_.bytes()},
      {"experts", routing_.bytes() + pairs_.bytes() + experts_.bytes()},
      {"content sums", results_.bytes()},
      {"choices of tokens", choice_.bytes()},
      {"rope tables", rope_bytes_},
      {"activations and vectors", *buffers_},
      {"weights' piece, unfilled", weights_.unfilled_bytes()},
  };
}

}  // namespace cuda

StatusOr<std::unique_ptr<CudaBackend>> MakeCudaBackend(
    const CudaOptions& options) {
  using cuda::ToStatus;
  int count = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&count), "CUDA devices");
  if (options.device < 0 || options.device >= count) {
    return NotFound("CUDA device " + std::to_string(options.device) + " of " +
                    std::to_string(count));
  }
  HF_CUDA_RETURN_IF_ERROR(cudaSetDevice(options.device), "CUDA device");
  cudaDeviceProp properties = {};
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, options.device),
                          "CUDA device properties");
  const std::string architecture = "sm_" + std::to_string(properties.major) +
                                   std::to_string(properties.minor);
  if (const auto code = ToStatus(cuda::FindKernels(), "its kernels");
      !code.ok()) {
    return Unimplemented("CUDA device " + std::string(properties.name) + " (" +
                         architecture +
                         ") cannot run this build: " + code.message());
  }
  int runtime = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaRuntimeGetVersion(&runtime),
                          "CUDA runtime version");
  const int threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  BackendInfo info;
  info.name = "cuda";
  info.target = std::string(properties.name) + " " + architecture;
  info.exactness = Exactness::kGrid;
  info.arithmetic_revision = cuda::kArithmeticRevision;
  info.threads = threads;
  // A library may cut a product by the multiprocessors that there are.
  info.choices = architecture + " x " +
                 std::to_string(properties.multiProcessorCount) +
                 ", CUDA runtime " + std::to_string(runtime);
  info.host_memory = false;
  HF_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::MakeStream());
  HF_ASSIGN_OR_RETURN(
      cuda::PinnedMemory staging,
      cuda::PinnedMemory::Make(cuda::kStagingBytes, "weights on their way"));
  HF_ASSIGN_OR_RETURN(
      cuda::PinnedMemory arriving,
      cuda::PinnedMemory::Make(cuda::kArrivingBytes, "results on their way"));
  return std::unique_ptr<CudaBackend>(
      new cuda::BackendImpl(std::move(info), std::move(stream),
                            std::move(staging), std::move(arriving), threads));
}

}  // namespace holdfast::kernels
