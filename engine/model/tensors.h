// The tensors of a model's files by name, whatever format they came from.
#ifndef HOLDFAST_ENGINE_MODEL_TENSORS_H_
#define HOLDFAST_ENGINE_MODEL_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// A tensor as its file has it; `data` lies in the file's mapping, checked to be
// inside it.
struct FileTensor {
  std::string name;
  kernels::WeightType type = kernels::WeightType::kF32;
  std::vector<std::int64_t> shape;  // slowest dimension first, all positive
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// "[576, 1536]"
std::string ShapeText(std::span<const std::int64_t> shape);

// Bytes of a tensor of this type and shape (1 to 8 positive dimensions, the
// last whole in the type's blocks); none when that is not so or overflows.
std::optional<std::size_t> TensorBytes(kernels::WeightType type,
                                       std::span<const std::int64_t> shape);

// An error that names file and tensor when a number of the tensor (for blocks:
// a scale or minimum) is NaN or infinite.
kernels::Status CheckFinite(const std::string& file, const FileTensor& tensor);

// Appends the numbers of a vector or a small matrix of F32, F16 or BF16, in the
// tensor's row order; an error that names file and tensor for other types.
kernels::Status AppendFloats(const std::string& file,
                             const kernels::WeightTensor& tensor,
                             std::vector<float>* out);

// Tensors by name, over one file or several shards. Does not own their bytes.
// Remembers which were taken, so that a tensor no one knows is found: it would
// change the arithmetic and be left out in silence otherwise.
class TensorMap {
 public:
  // `source` is the file or folder, for messages.
  explicit TensorMap(std::string source) : source_(std::move(source)) {}

  // An error when a name is already there.
  kernels::Status Add(std::span<const FileTensor> tensors);

  const std::string& source() const { return source_; }
  bool Has(const std::string& name) const { return map_.contains(name); }
  // The tensor with its shape checked and its numbers finite; each error names
  // file and tensor. Matrices are [rows, cols], vectors [cols]. A matrix of
  // F8_E4M3 comes with its scales: of 128 x 128 numbers each, or one, in the
  // tensor NAME_scale_inv or NAME_scale.
  kernels::StatusOr<kernels::WeightTensor> TakeMatrix(const std::string& name,
                                                      std::int64_t rows,
                                                      std::int64_t cols);
  kernels::StatusOr<kernels::WeightTensor> TakeVector(const std::string& name,
                                                      std::int64_t size);
  // A tensor of any shape, as rows of its last dimension; of a type without
  // scales beside it.
  kernels::StatusOr<kernels::WeightTensor> TakeShaped(
      const std::string& name, std::span<const std::int64_t> shape);
  // Marks a tensor that may be there and carries nothing that is used, or all
  // whose names begin so.
  void Ignore(const std::string& name);
  void IgnorePrefix(std::string_view prefix);
  // The first tensor (by name) that nothing took.
  std::optional<std::string> FirstUnused() const;

 private:
  struct Entry {
    const FileTensor* tensor = nullptr;
    bool used = false;
  };
  kernels::StatusOr<kernels::WeightTensor> Take(
      const std::string& name, std::span<const std::int64_t> shape);
  kernels::Status TakeScales(kernels::WeightTensor* weight);

  std::string source_;
  std::unordered_map<std::string, Entry> map_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_TENSORS_H_
