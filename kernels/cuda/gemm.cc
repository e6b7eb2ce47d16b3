#include "kernels/cuda/gemm.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
// Beyond this no kernel of the library asks for more.
constexpr std::uint64_t kMostAlignment = 16;
// The first ones that a heuristic names may be marked as unusable.
constexpr int kAsked = 4;

Status Check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return Internal("cublasLt: " + what + ": status " +
                  std::to_string(static_cast<int>(status)));
}

template <typename T>
struct Destroy {
  cublasStatus_t (*destroy)(T*) = nullptr;
  void operator()(T* object) const { (void)destroy(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

// The library's matrices are column-major: our row-major w is its A transposed,
// our x its B, our y its D.
struct Problem {
  Owned<cublasLtMatmulDescOpaque_t> operation;
  Owned<cublasLtMatrixLayoutOpaque_t> a, b, d;

  static StatusOr<Problem> Make(const CublasLt& library, std::int64_t n,
                                std::int64_t k, std::int64_t stride,
                                std::int64_t rows, std::int64_t y_stride) {
    Problem problem;
    cublasLtMatmulDesc_t operation = nullptr;
    HF_RETURN_IF_ERROR(Check(
        library.MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product"));
    problem.operation = {operation, {library.MatmulDescDestroy}};
    const cublasOperation_t transpose = CUBLAS_OP_T;
    HF_RETURN_IF_ERROR(Check(
        library.MatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                       &transpose, sizeof(transpose)),
        "transposing weights"));
    const auto layout = [&library](cudaDataType_t type, std::int64_t height,
                                   std::int64_t width, std::int64_t between,
                                   auto* owner) {
      cublasLtMatrixLayout_t made = nullptr;
      const Status status =
          Check(library.MatrixLayoutCreate(&made, type, height, width, between),
                "describing a matrix");
      *owner = {made, {library.MatrixLayoutDestroy}};
      return status;
    };
    HF_RETURN_IF_ERROR(layout(CUDA_R_16BF, k, n, stride, &problem.a));
    HF_RETURN_IF_ERROR(layout(CUDA_R_16BF, k, rows, stride, &problem.b));
    HF_RETURN_IF_ERROR(layout(CUDA_R_32F, n, rows, y_stride, &problem.d));
    return problem;
  }
};

std::int64_t AlignmentOf(const float* y, std::int64_t y_stride) {
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(y) |
                             static_cast<std::uint64_t>(y_stride) * sizeof(*y) |
                             kMostAlignment;
  return static_cast<std::int64_t>(bits & -bits);
}

// What an algorithm is, as far as the library tells.
constexpr struct {
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  std::size_t bytes;
} kSettings[] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

// "-": the algorithm has no such setting.
std::string Setting(const CublasLt& library,
                    const cublasLtMatmulAlgo_t& algorithm,
                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                    std::size_t bytes) {
  std::uint32_t wide = 0;
  std::uint16_t narrow = 0;
  void* const value = bytes == sizeof(narrow) ? static_cast<void*>(&narrow)
                                              : static_cast<void*>(&wide);
  std::size_t written = 0;
  if (library.MatmulAlgoConfigGetAttribute(&algorithm, attribute, value, bytes,
                                           &written) != CUBLAS_STATUS_SUCCESS) {
    return "-";
  }
  return std::to_string(wide + narrow);
}

}  // namespace

StatusOr<std::unique_ptr<Gemm>> Gemm::Make(cudaStream_t stream,
                                           int tuned_rows) {
  auto gemm = std::make_unique<Gemm>();
  gemm->stream_ = stream;
  gemm->tuned_rows_ = tuned_rows;
  HF_ASSIGN_OR_RETURN(gemm->library_, LoadCublasLt());
  cublasLtHandle_t handle = nullptr;
  HF_RETURN_IF_ERROR(Check(gemm->library_->Create(&handle), "start"));
  gemm->handle_ = {handle, {gemm->library_}};
  HF_ASSIGN_OR_RETURN(gemm->workspace_,
                      DeviceMemory::Make(kWorkspaceBytes, "products"));
  return gemm;
}

StatusOr<cublasLtMatmulAlgo_t> Gemm::Choose(const Shape& shape) {
  if (const auto it = chosen_.find(shape); it != chosen_.end()) {
    return it->second;
  }
  HF_ASSIGN_OR_RETURN(
      const Problem problem,
      Problem::Make(*library_, shape.n, shape.k, shape.stride,
                    shape.rows > 0 ? shape.rows : tuned_rows_, shape.y_stride));
  cublasLtMatmulPreference_t made = nullptr;
  HF_RETURN_IF_ERROR(
      Check(library_->MatmulPreferenceCreate(&made), "preferences"));
  const Owned<cublasLtMatmulPreferenceOpaque_t> preference(
      made, {library_->MatmulPreferenceDestroy});
  const std::size_t workspace = workspace_.bytes();
  const std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  const auto alignment = static_cast<std::uint32_t>(shape.y_alignment);
  HF_RETURN_IF_ERROR(Check(library_->MatmulPreferenceSetAttribute(
                               made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                               &workspace, sizeof(workspace)),
                           "workspace"));
  HF_RETURN_IF_ERROR(Check(library_->MatmulPreferenceSetAttribute(
                               made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                               &reduction, sizeof(reduction)),
                           "reduction scheme"));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    HF_RETURN_IF_ERROR(
        Check(library_->MatmulPreferenceSetAttribute(
                  made, attribute, &alignment, sizeof(alignment)),
              "alignment"));
  }
  cublasLtMatmulHeuristicResult_t results[kAsked] = {};
  int found = 0;
  const Status status =
      Check(library_->MatmulAlgoGetHeuristic(
                handle_.get(), problem.operation.get(), problem.a.get(),
                problem.b.get(), problem.d.get(), problem.d.get(), made, kAsked,
                results, &found),
            "choosing an algorithm for " + std::to_string(shape.n) + " x " +
                std::to_string(shape.k));
  HF_RETURN_IF_ERROR(status);
  for (int i = 0; i < found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    chosen_[shape] = results[i].algo;
    return results[i].algo;
  }
  return Unimplemented("cublasLt has no algorithm for weights of " +
                       std::to_string(shape.n) + " x " +
                       std::to_string(shape.k));
}

Status Gemm::Multiply(const std::uint16_t* w, std::int64_t n,
                      const std::uint16_t* x, int rows, std::int64_t k,
                      std::int64_t stride, float* y, std::int64_t y_stride) {
  HF_ASSIGN_OR_RETURN(const Problem problem,
                      Problem::Make(*library_, n, k, stride, rows, y_stride));
  const float one = 1.0f;
  const float zero = 0.0f;
  const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return library_->Matmul(handle_.get(), problem.operation.get(), &one, w,
                            problem.a.get(), x, problem.b.get(), &zero, y,
                            problem.d.get(), y, problem.d.get(), &algorithm,
                            workspace_.data(), workspace_.bytes(), stream_);
  };
  Shape shape = {n, k, stride, y_stride, AlignmentOf(y, y_stride), 0};
  Shape own = shape;
  own.rows = rows;
  if (chosen_.contains(own)) shape = own;
  HF_ASSIGN_OR_RETURN(cublasLtMatmulAlgo_t algorithm, Choose(shape));
  cublasStatus_t status = multiply(algorithm);
  // Nothing has been launched then.
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       status == CUBLAS_STATUS_INVALID_VALUE;
  if (refused && shape.rows == 0 && rows != tuned_rows_) {
    HF_ASSIGN_OR_RETURN(algorithm, Choose(own));
    status = multiply(algorithm);
  }
  return Check(status, "product of " + std::to_string(rows) + " rows with " +
                           std::to_string(n) + " x " + std::to_string(k));
}

std::string Gemm::Record() const {
  std::string record = "cublasLt " + std::to_string(library_->GetVersion()) +
                       " rows " + std::to_string(tuned_rows_);
  for (const auto& [shape, algorithm] : chosen_) {
    record += "; " + std::to_string(shape.n) + "x" + std::to_string(shape.k) +
              "/" + std::to_string(shape.y_stride) + "@" +
              std::to_string(shape.y_alignment) +
              (shape.rows > 0 ? " rows " + std::to_string(shape.rows) : "") +
              ":";
    for (const auto& [attribute, bytes] : kSettings) {
      record += " " + Setting(*library_, algorithm, attribute, bytes);
    }
  }
  return record;
}

}  // namespace holdfast::kernels::cuda
