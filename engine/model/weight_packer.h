// Takes tensors out of a model's files and hands them to a backend.
#ifndef HOLDFAST_ENGINE_MODEL_WEIGHT_PACKER_H_
#define HOLDFAST_ENGINE_MODEL_WEIGHT_PACKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/model/tensors.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// Errors name file and tensor. Both must outlive this.
class WeightPacker {
 public:
  WeightPacker(TensorMap* tensors, kernels::Backend* backend)
      : tensors_(*tensors), backend_(*backend) {}

  TensorMap& tensors() { return tensors_; }
  // Of everything packed and uploaded so far.
  std::size_t bytes() const { return bytes_; }

  kernels::StatusOr<std::unique_ptr<kernels::Matrix>> Pack(
      std::span<const kernels::WeightTensor> parts);
  kernels::StatusOr<std::unique_ptr<kernels::Matrix>> PackMatrix(
      const std::string& name, std::int64_t rows, std::int64_t cols);
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> UploadVector(
      const std::string& name, std::int64_t size);
  // `name` is for messages.
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> UploadFloats(
      const std::string& name, std::span<const float> values);

 private:
  TensorMap& tensors_;
  kernels::Backend& backend_;
  std::size_t bytes_ = 0;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_WEIGHT_PACKER_H_
