#include "kernels/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include <string>

// Of the headers that this was compiled with.
#define HF_TEXT_OF(number) #number
#define HF_TEXT(number) HF_TEXT_OF(number)

namespace holdfast::kernels::cuda {

StatusOr<const CublasLt*> LoadCublasLt() {
  static CublasLt library;
  static const Status status = []() -> Status {
    constexpr char kName[] = "libcublasLt.so." HF_TEXT(CUBLAS_VER_MAJOR);
    void* loaded = nullptr;
    for (const std::string& path :
         {std::string(HOLDFAST_CUDA_LIBRARIES) + "/" + kName,
          std::string(kName)}) {
      loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (loaded != nullptr) break;
    }
    if (loaded == nullptr) {
      return FailedPrecondition(std::string("loading cublasLt: ") + dlerror());
    }
#define HF_FUNCTION(name)                                                \
  library.name = reinterpret_cast<decltype(library.name)>(               \
      dlsym(loaded, "cublasLt" #name));                                  \
  if (library.name == nullptr) {                                         \
    return FailedPrecondition(std::string("cublasLt has no function ") + \
                              "cublasLt" #name);                         \
  }
    HF_EVERY_CUBLASLT_FUNCTION(HF_FUNCTION)
#undef HF_FUNCTION
    return OkStatus();
  }();
  if (!status.ok()) return status;
  return &library;
}

}  // namespace holdfast::kernels::cuda
