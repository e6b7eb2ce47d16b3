#include "engine/model/weight_packer.h"

namespace holdfast::model {

using kernels::Buffer;
using kernels::Matrix;
using kernels::StatusOr;
using kernels::WeightTensor;

StatusOr<std::unique_ptr<Matrix>> WeightPacker::Pack(
    std::span<const WeightTensor> parts) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Matrix> matrix,
                      backend_.PackMatrix(parts));
  bytes_ += matrix->bytes();
  return matrix;
}

StatusOr<std::unique_ptr<Matrix>> WeightPacker::PackMatrix(
    const std::string& name, std::int64_t rows, std::int64_t cols) {
  HF_ASSIGN_OR_RETURN(const WeightTensor tensor,
                      tensors_.TakeMatrix(name, rows, cols));
  return Pack({&tensor, 1});
}

StatusOr<std::unique_ptr<Buffer>> WeightPacker::UploadVector(
    const std::string& name, std::int64_t size) {
  HF_ASSIGN_OR_RETURN(const WeightTensor tensor,
                      tensors_.TakeVector(name, size));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      backend_.UploadVector(tensor));
  bytes_ += buffer->bytes();
  return buffer;
}

StatusOr<std::unique_ptr<Buffer>> WeightPacker::UploadFloats(
    const std::string& name, std::span<const float> values) {
  WeightTensor tensor;
  tensor.name = name;
  tensor.rows = 1;
  tensor.cols = static_cast<std::int64_t>(values.size());
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      backend_.UploadVector(tensor));
  bytes_ += buffer->bytes();
  return buffer;
}

}  // namespace holdfast::model
