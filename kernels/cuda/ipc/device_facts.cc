#include "kernels/cuda/ipc/device_facts.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/host_reads.h"

namespace holdfast::kernels::cuda {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kRoundTrip{20};
// Of a board that shares its memory: exhaustion there hangs the machine.
constexpr std::uint64_t kReserveBytes = std::uint64_t{16} << 30;
// Of another device, at most: the cache service's context, which comes after
// everything was taken, and code that is loaded when it is first used.
constexpr std::uint64_t kContextBytes = std::uint64_t{1} << 30;
constexpr std::size_t kCopyBytes = std::size_t{64} << 20;
constexpr int kCopies = 10;

// By their numbers, which are the driver's too: not every toolkit names all.
constexpr struct {
  int number;
  const char* name;
} kAttributes[] = {
    {16, "multiprocessors"},
    {18, "integrated"},
    {75, "compute_major"},
    {76, "compute_minor"},
    {86, "host_native_atomics"},
    {88, "pageable_memory_access"},
    {97, "shared_memory_per_block_optin"},
    {99, "host_register"},
    {100, "pageable_uses_host_page_tables"},
    {103, "vmm_posix_fd"},
    {113, "host_register_read_only"},
    {119, "memory_pool_handle_types"},
    {124, "attribute_124"},
    {125, "ipc_events"},
    {141, "host_numa_vmm"},
    {147, "only_partial_host_atomics"},
};

std::uint64_t MeminfoBytes(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  while (file >> name) {
    std::uint64_t kibibytes = 0;
    if (name == wanted && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

std::string Said(const Status& status) {
  return status.ok() ? "\"ok\"" : JsonString(status.message());
}

// GB/s of a copy of kCopyBytes, or what went wrong.
std::string Rate(const std::function<cudaError_t()>& copy) {
  for (int i = 0; i < 2; ++i) {  // the first copy warms up
    const auto start = steady_clock::now();
    for (int n = 0; n < (i == 0 ? 1 : kCopies); ++n) {
      if (const cudaError_t error = copy(); error != cudaSuccess) {
        return Said(ToStatus(error, "copy"));
      }
    }
    if (const cudaError_t error = cudaDeviceSynchronize();
        error != cudaSuccess) {
      return Said(ToStatus(error, "copy"));
    }
    if (i == 1) {
      const std::chrono::duration<double> took = steady_clock::now() - start;
      char text[32];
      std::snprintf(
          text, sizeof(text), "%.1f",
          kCopies * static_cast<double>(kCopyBytes) / took.count() / 1e9);
      return text;
    }
  }
  return "null";
}

std::string Rates() {
  const auto a = DeviceMemory::Make(kCopyBytes, "timing copies");
  const auto b = DeviceMemory::Make(kCopyBytes, "timing copies");
  const auto pinned = PinnedMemory::Make(kCopyBytes, "timing copies");
  if (!a.ok()) return Said(a.status());
  if (!b.ok()) return Said(b.status());
  if (!pinned.ok()) return Said(pinned.status());
  const auto copy = [](void* to, const void* from, cudaMemcpyKind kind) {
    return Rate(
        [=] { return cudaMemcpyAsync(to, from, kCopyBytes, kind, nullptr); });
  };
  return "{\"device_to_device\": " +
         copy(b->data(), a->data(), cudaMemcpyDeviceToDevice) +
         ", \"device_to_pinned\": " +
         copy(pinned->data(), a->data(), cudaMemcpyDeviceToHost) +
         ", \"pinned_to_device\": " +
         copy(a->data(), pinned->data(), cudaMemcpyHostToDevice) + "}";
}

std::string Said(const HostRead& read) {
  if (!read.status.ok()) return Said(read.status);
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", read.gb_per_s);
  return text;
}

// Where the file system of a cache is likely to be; a tmpfs would say nothing.
constexpr char kFileFolder[] = "/var/tmp";

// What the second process, files and shared memory are good for.
std::string RoundTrips(const std::string& program) {
  std::string available =
      "{\"before\": " + std::to_string(MeminfoBytes("MemAvailable:"));
  const Status exporter =
      KillExporter(program, kRoundTrip, [&available](const char* when) {
        available += std::string(", \"") + when +
                     "\": " + std::to_string(MeminfoBytes("MemAvailable:"));
      });
  return "  \"ipc_round_trip\": " + Said(IpcRoundTrip(program, kRoundTrip)) +
         ",\n  \"ipc_importer_killed\": " +
         Said(KillImporter(program, kRoundTrip)) +
         ",\n  \"ipc_exporter_killed\": " + Said(exporter) +
         ",\n  \"mem_available_around_exporter\": " + available + "}" +
         ",\n  \"ipc_event_round_trip\": " +
         Said(EventRoundTrip(program, kRoundTrip)) +
         ",\n  \"vmm_fd_round_trip\": " +
         Said(VmmRoundTrip(program, kRoundTrip)) +
         ",\n  \"register_memfd\": " + Said(RegisterSharedMemory()) +
         ",\n  \"direct_read_gb_per_s\": {\"pinned_memfd\": " +
         Said(DirectReadIntoPinnedMemfd(kFileFolder)) +
         ", \"host_alloc\": " + Said(DirectReadIntoHostAlloc(kFileFolder)) +
         "},\n  \"plain_memfd_gb_per_s\": {\"copy\": " +
         Said(CopyFromPlainMemfd()) +
         ", \"kernel\": " + Said(KernelReadOfPlainMemfd()) + "}";
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

std::string DeviceFactsJson(const std::string& program) {
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  std::string json =
      "{\n  \"driver\": " + std::to_string(driver) +
      ",\n  \"runtime\": " + std::to_string(runtime) +
      ",\n  \"page_bytes\": " + std::to_string(sysconf(_SC_PAGESIZE)) +
      ",\n  \"mem_total_bytes\": " + std::to_string(MeminfoBytes("MemTotal:")) +
      ",\n  \"mem_available_bytes\": " +
      std::to_string(MeminfoBytes("MemAvailable:")) +
      ",\n  \"mem_free_bytes\": " + std::to_string(MeminfoBytes("MemFree:"));
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count);
      error != cudaSuccess) {
    return json + ",\n  \"device\": null,\n  \"reason\": " +
           Said(ToStatus(error, "CUDA devices")) + "\n}\n";
  }
  cudaDeviceProp properties = {};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
      error != cudaSuccess) {
    return json + ",\n  \"device\": null,\n  \"reason\": " +
           Said(ToStatus(error, "CUDA device 0")) + "\n}\n";
  }
  json += ",\n  \"devices\": " + std::to_string(count) +
          ",\n  \"device\": " + JsonString(properties.name) +
          ",\n  \"attributes\": {";
  const char* between = "";
  for (const auto& attribute : kAttributes) {
    int value = 0;
    const cudaError_t error = cudaDeviceGetAttribute(
        &value, static_cast<cudaDeviceAttr>(attribute.number), 0);
    json += std::string(between) + "\"" + attribute.name +
            "\": " + (error == cudaSuccess ? std::to_string(value) : "null");
    if (error != cudaSuccess) (void)cudaGetLastError();
    between = ", ";
  }
  json += "},\n";
  const auto budget = DeviceBudget();
  json += "  \"budget\": " +
          (budget.ok() ? "{\"bytes\": " + std::to_string(budget->bytes) +
                             ", \"how\": " + JsonString(budget->how) + "}"
                       : Said(budget.status())) +
          ",\n" + RoundTrips(program) + ",\n  \"copy_gb_per_s\": " + Rates() +
          "\n}\n";
  return json;
}

StatusOr<MemoryBudget> DeviceBudget() {
  int integrated = 0;
  HF_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, 0),
      "whether the device shares the host's memory");
  MemoryBudget budget;
  budget.integrated = integrated != 0;
  if (budget.integrated) {
    const std::uint64_t available = MeminfoBytes("MemAvailable:");
    budget.bytes = available - std::min(available, kReserveBytes);
    budget.how =
        "MemAvailable less 16 GiB: the device shares the host's memory";
    return budget;
  }
  std::size_t free = 0;
  std::size_t total = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total),
                          "the device's free memory");
  const std::uint64_t reserve =
      std::min<std::uint64_t>(kContextBytes, total / 16);
  budget.bytes = free - std::min<std::uint64_t>(free, reserve);
  budget.how =
      "the device's free memory less " + std::to_string(reserve >> 20) + " MiB";
  return budget;
}

}  // namespace holdfast::kernels::cuda
