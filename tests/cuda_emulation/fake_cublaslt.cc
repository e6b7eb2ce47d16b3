// Products by the library's rules (column-major, leading dimensions,
// transposition), bf16 in, float out. What a description does not allow is
// refused as the library would: that is what this is for.
#include <cstring>

#include "kernels/cuda/cublaslt_library.h"
#include "kernels/float16.h"
#include "tests/cuda_emulation/fake_state.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t a = CUBLAS_OP_N;
  cublasOperation_t b = CUBLAS_OP_N;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint32_t reduction = 0xffffffffu;
  std::uint32_t d_alignment = 256;
};

namespace {

constexpr std::uint32_t kAlgorithm = 21;
constexpr std::uint32_t kInnerShape = 5;
constexpr std::uint32_t kClusterShape = 3;
// Words of an algorithm beside its settings: what D it was chosen for.
constexpr int kAlignmentWord = 6;
constexpr int kColumnsWord = 7;

// Settings lie in pairs in an algorithm's words. It has no custom option.
std::uint32_t GetSetting(const cublasLtMatmulAlgo_t& algo, int attribute) {
  const std::uint64_t word = algo.data[attribute / 2];
  return static_cast<std::uint32_t>(attribute % 2 == 0 ? word : word >> 32);
}
void Set(cublasLtMatmulAlgo_t& algo, int attribute, std::uint64_t setting) {
  algo.data[attribute / 2] |= attribute % 2 == 0 ? setting : setting << 32;
}

// Heights and widths of op(A), op(B) and D; false: they do not fit.
bool Fits(const cublasLtMatmulDescOpaque_t& operation,
          const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b,
          const cublasLtMatrixLayoutOpaque_t& d) {
  const auto turned = [](const auto& matrix, cublasOperation_t op) {
    auto result = matrix;
    if (op == CUBLAS_OP_T) {
      result.rows = matrix.cols;
      result.cols = matrix.rows;
    }
    return result;
  };
  const auto left = turned(a, operation.a);
  const auto right = turned(b, operation.b);
  return a.type == CUDA_R_16BF && b.type == CUDA_R_16BF &&
         d.type == CUDA_R_32F && left.cols == right.rows &&
         d.rows == left.rows && d.cols == right.cols && a.ld >= a.rows &&
         b.ld >= b.rows && d.ld >= d.rows;
}

}  // namespace

std::size_t cublasLtGetVersion() { return 130100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *operation = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
    const void* value, std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(
      attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &operation->a : &operation->b,
      value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType_t type,
                                          std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *layout =
      new cublasLtMatrixLayoutOpaque_t{type, static_cast<std::int64_t>(rows),
                                       static_cast<std::int64_t>(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    std::size_t bytes) {
  const std::size_t wanted =
      attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
          ? sizeof(std::uint64_t)
          : sizeof(std::uint32_t);
  if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&preference->reduction, value, bytes);
  }
  if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
    std::memcpy(&preference->d_alignment, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (wanted < 2 || !Fits(*operation, *a, *b, *d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  results[0] = {};
  results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  results[1] = {};
  cublasLtMatmulAlgo_t& algo = results[1].algo;
  algo.data[kAlignmentWord] = preference->d_alignment;
  algo.data[kColumnsWord] = static_cast<std::uint64_t>(d->cols);
  Set(algo, CUBLASLT_ALGO_CONFIG_ID, kAlgorithm);
  Set(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
      preference->reduction == CUBLASLT_REDUCTION_SCHEME_NONE ? 1 : 4);
  Set(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, kInnerShape);
  Set(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, kClusterShape);
  *found = 2;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo,
    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
    std::size_t bytes, std::size_t* written) {
  const std::uint32_t setting = GetSetting(*algo, attribute);
  const bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                      attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  if (bytes != (narrow ? sizeof(std::uint16_t) : sizeof(setting))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (attribute == CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  std::memcpy(value, &setting, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void*,
                              std::size_t, cudaStream_t) {
  if (!Fits(*operation, *a_layout, *b_layout, *d_layout) ||
      GetSetting(*algo, CUBLASLT_ALGO_CONFIG_ID) != kAlgorithm ||
      *static_cast<const float*>(alpha) != 1.0f ||
      *static_cast<const float*>(beta) != 0.0f ||
      (reinterpret_cast<std::uintptr_t>(d) |
       static_cast<std::uint64_t>(d_layout->ld) * sizeof(float)) %
              algo->data[kAlignmentWord] !=
          0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (holdfast::emulation::Runtime::Get().device.algorithms_of_one_size &&
      algo->data[kColumnsWord] != static_cast<std::uint64_t>(d_layout->cols)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto* left = static_cast<const std::uint16_t*>(a);
  const auto* right = static_cast<const std::uint16_t*>(b);
  auto* out = static_cast<float*>(d);
  const bool a_turned = operation->a == CUBLAS_OP_T;
  const bool b_turned = operation->b == CUBLAS_OP_T;
  const std::int64_t inner = a_turned ? a_layout->rows : a_layout->cols;
  for (std::int64_t col = 0; col < d_layout->cols; ++col) {
    for (std::int64_t row = 0; row < d_layout->rows; ++row) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < inner; ++k) {
        const auto x =
            left[a_turned ? row * a_layout->ld + k : k * a_layout->ld + row];
        const auto y =
            right[b_turned ? k * b_layout->ld + col : col * b_layout->ld + k];
        // A product of two bf16 numbers is a float.
        sum += holdfast::kernels::Bf16ToFloat(x) *
               holdfast::kernels::Bf16ToFloat(y);
      }
      out[col * d_layout->ld + row] = sum;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

namespace holdfast::kernels::cuda {

StatusOr<const CublasLt*> LoadCublasLt() {
  static const CublasLt library = {
#define HF_FUNCTION(name) &::cublasLt##name,
      HF_EVERY_CUBLASLT_FUNCTION(HF_FUNCTION)
#undef HF_FUNCTION
  };
  return &library;
}

}  // namespace holdfast::kernels::cuda
