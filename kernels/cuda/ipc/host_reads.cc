#include "kernels/cuda/ipc/host_reads.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/content_sum.h"
#include "kernels/cuda/device_memory.h"

namespace holdfast::kernels::cuda {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{32} << 20;
constexpr std::size_t kPiece = std::size_t{4} << 20;

Status Errno(const std::string& what) {
  return Internal(what + ": " + std::strerror(errno));
}

double Rate(steady_clock::time_point start) {
  const std::chrono::duration<double> took = steady_clock::now() - start;
  return kBytes / took.count() / 1e9;
}

std::uint64_t Word(std::size_t i) { return i * 0x9e3779b97f4a7c15u; }

void Fill(std::byte* memory) {
  for (std::size_t i = 0; i < kBytes / 8; ++i) {
    const std::uint64_t word = Word(i);
    std::memcpy(memory + 8 * i, &word, 8);
  }
}

// A shared mapping of a memfd; unmapped when this is destroyed.
class Memfd {
 public:
  static StatusOr<Memfd> Make() {
    const int fd = memfd_create("holdfast-probe", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kBytes) != 0) {
      if (fd >= 0) close(fd);
      return Errno("a memfd for the probe");
    }
    void* const data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED) return Errno("mapping a memfd for the probe");
    return Memfd(static_cast<std::byte*>(data));
  }
  Memfd(Memfd&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Memfd& operator=(Memfd&&) = delete;
  ~Memfd() {
    if (data_ != nullptr) munmap(data_, kBytes);
  }
  std::byte* data() const { return data_; }

 private:
  explicit Memfd(std::byte* data) : data_(data) {}
  std::byte* data_;
};

// An unlinked file that was written around the page cache.
class DirectFile {
 public:
  static StatusOr<DirectFile> Make(const std::string& folder) {
    std::string name = folder + "/holdfast-probe-XXXXXX";
    const int plain = mkostemp(name.data(), O_CLOEXEC);
    if (plain < 0) return Errno("a file in " + folder);
    const int fd = open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    const int error = errno;
    unlink(name.c_str());
    close(plain);
    if (fd < 0) {
      return Internal("O_DIRECT in " + folder + ": " + std::strerror(error));
    }
    DirectFile file(fd);
    HF_ASSIGN_OR_RETURN(const Memfd pattern, Memfd::Make());
    Fill(pattern.data());
    for (std::size_t at = 0; at < kBytes; at += kPiece) {
      if (pwrite(fd, pattern.data() + at, kPiece, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(kPiece)) {
        return Errno("a direct write in " + folder);
      }
    }
    return file;
  }
  DirectFile(DirectFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile() {
    if (fd_ >= 0) close(fd_);
  }

  Status Read(std::byte* to) const {
    for (std::size_t at = 0; at < kBytes; at += kPiece) {
      if (pread(fd_, to + at, kPiece, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(kPiece)) {
        return Errno("a direct read");
      }
    }
    return OkStatus();
  }

 private:
  explicit DirectFile(int fd) : fd_(fd) {}
  int fd_;
};

// The device gets the pattern that lies at `memory`.
Status DeviceSees(const std::byte* memory) {
  HF_ASSIGN_OR_RETURN(const DeviceMemory device,
                      DeviceMemory::Make(kBytes, "the read probe"));
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(device.data(), memory, kBytes, cudaMemcpyHostToDevice),
      "copying to the device");
  HF_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "copying to the device");
  std::vector<std::uint64_t> back(kBytes / 8);
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(back.data(), device.data(), kBytes, cudaMemcpyDeviceToHost),
      "copying from the device");
  for (std::size_t i = 0; i < back.size(); ++i) {
    if (back[i] != Word(i)) return DataLoss("the device got other bytes");
  }
  return OkStatus();
}

StatusOr<double> ReadInto(const std::string& folder, std::byte* memory) {
  HF_ASSIGN_OR_RETURN(const DirectFile file, DirectFile::Make(folder));
  const auto start = steady_clock::now();
  HF_RETURN_IF_ERROR(file.Read(memory));
  const double rate = Rate(start);
  HF_RETURN_IF_ERROR(DeviceSees(memory));
  return rate;
}

StatusOr<double> IntoPinnedMemfd(const std::string& folder) {
  HF_ASSIGN_OR_RETURN(const Memfd memory, Memfd::Make());
  HF_ASSIGN_OR_RETURN(
      const PinnedRegion pinned,
      PinnedRegion::Make(memory.data(), kBytes, "shared memory"));
  return ReadInto(folder, memory.data());
}

StatusOr<double> IntoHostAlloc(const std::string& folder) {
  HF_ASSIGN_OR_RETURN(const PinnedMemory memory,
                      PinnedMemory::Make(kBytes, "the read probe"));
  return ReadInto(folder, memory.data());
}

StatusOr<double> CopyPlain() {
  HF_ASSIGN_OR_RETURN(const Memfd memory, Memfd::Make());
  Fill(memory.data());
  HF_RETURN_IF_ERROR(DeviceSees(memory.data()));
  HF_ASSIGN_OR_RETURN(const DeviceMemory device,
                      DeviceMemory::Make(kBytes, "the read probe"));
  const auto start = steady_clock::now();
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(device.data(), memory.data(), kBytes, cudaMemcpyHostToDevice),
      "copying to the device");
  HF_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize(), "copying to the device");
  return Rate(start);
}

struct SumsOf {
  unsigned long long a = 0;
  unsigned long long b = 0;
};

// What a kernel sums that is given this address.
StatusOr<SumsOf> KernelSums(const std::byte* memory, double* rate) {
  HF_ASSIGN_OR_RETURN(const DeviceMemory table,
                      DeviceMemory::Make(64, "the read probe"));
  HF_RETURN_IF_ERROR(
      CopyToDevice(table.data() + 16, &memory, sizeof(memory), "an address"));
  HF_ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  const auto start = steady_clock::now();
  HF_CUDA_RETURN_IF_ERROR(
      AddContentSums(
          stream.get(),
          reinterpret_cast<const std::byte* const*>(table.data() + 16), 1, 0,
          kBytes, table.as<unsigned long long>()),
      "a kernel that reads host memory");
  HF_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream.get()),
                          "a kernel that reads host memory");
  *rate = Rate(start);
  SumsOf sums;
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(&sums, table.data(), sizeof(sums), cudaMemcpyDeviceToHost),
      "reading sums");
  return sums;
}

StatusOr<double> KernelPlain() {
  int reads_pageable = 0;
  HF_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess,
                             0),
      "whether the device reads pageable memory");
  if (reads_pageable == 0) {
    return Unimplemented("the device does not read pageable memory");
  }
  HF_ASSIGN_OR_RETURN(const Memfd memory, Memfd::Make());
  Fill(memory.data());
  HF_ASSIGN_OR_RETURN(const DeviceMemory device,
                      DeviceMemory::Make(kBytes, "the read probe"));
  HF_RETURN_IF_ERROR(
      CopyToDevice(device.data(), memory.data(), kBytes, "the read probe"));
  double rate = 0;
  HF_ASSIGN_OR_RETURN(const SumsOf want, KernelSums(device.data(), &rate));
  HF_ASSIGN_OR_RETURN(const SumsOf got, KernelSums(memory.data(), &rate));
  if (got.a != want.a || got.b != want.b) {
    return DataLoss("a kernel read other bytes of host memory");
  }
  return rate;
}

HostRead Result(const StatusOr<double>& rate) {
  return rate.ok() ? HostRead{OkStatus(), *rate} : HostRead{rate.status(), 0};
}

}  // namespace

HostRead DirectReadIntoPinnedMemfd(const std::string& folder) {
  return Result(IntoPinnedMemfd(folder));
}

HostRead DirectReadIntoHostAlloc(const std::string& folder) {
  return Result(IntoHostAlloc(folder));
}

HostRead CopyFromPlainMemfd() { return Result(CopyPlain()); }

HostRead KernelReadOfPlainMemfd() { return Result(KernelPlain()); }

}  // namespace holdfast::kernels::cuda
