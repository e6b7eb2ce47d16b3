#include "engine/model/tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::WeightType;

std::uint16_t LoadU16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Whether any of `count` 16-bit numbers, `stride` bytes apart, has all bits of
// `exponent` set.
bool AnyNonFinite16(const std::byte* data, std::size_t count,
                    std::size_t stride, std::uint16_t exponent) {
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) {
    found |= (LoadU16(data + i * stride) & exponent) == exponent;
  }
  return found;
}

bool AnyNonFinite32(const std::byte* data, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t value;
    std::memcpy(&value, data + 4 * i, sizeof value);
    found |= (value & kExponent) == kExponent;
  }
  return found;
}

bool AnyNonFinite(WeightType type, const std::byte* data, std::size_t bytes) {
  constexpr std::uint16_t kHalf = 0x7c00;
  constexpr std::uint16_t kBrain = 0x7f80;
  // Blocks of 32: a half scale (Q4_1: and a half minimum), then the quanta.
  constexpr std::size_t kQ8Block = 34, kQ40Block = 18, kQ41Block = 20;
  switch (type) {
    case WeightType::kF32:
      return AnyNonFinite32(data, bytes / 4);
    case WeightType::kF16:
      return AnyNonFinite16(data, bytes / 2, 2, kHalf);
    case WeightType::kBF16:
      return AnyNonFinite16(data, bytes / 2, 2, kBrain);
    case WeightType::kQ8_0:
      return AnyNonFinite16(data, bytes / kQ8Block, kQ8Block, kHalf);
    case WeightType::kQ4_0:
      return AnyNonFinite16(data, bytes / kQ40Block, kQ40Block, kHalf);
    case WeightType::kQ4_1:
      return AnyNonFinite16(data, bytes / kQ41Block, kQ41Block, kHalf) ||
             AnyNonFinite16(data + 2, bytes / kQ41Block, kQ41Block, kHalf);
  }
  return true;
}

}  // namespace

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<std::size_t> TensorBytes(WeightType type,
                                       std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (shape.empty() || shape.size() > 4) return std::nullopt;
  for (std::int64_t size : shape) {
    if (size < 1 || size > kMax) return std::nullopt;
  }
  std::size_t bytes = kernels::WeightRowBytes(type, shape.back());
  if (bytes == 0) return std::nullopt;
  for (std::int64_t size : shape.first(shape.size() - 1)) {
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

kernels::Status CheckFinite(const std::string& file, const FileTensor& tensor) {
  if (!AnyNonFinite(tensor.type, tensor.data, tensor.bytes)) {
    return kernels::OkStatus();
  }
  return kernels::InvalidArgument(
      Message(file, ": tensor ", tensor.name, " holds NaN or infinity"));
}

kernels::Status TensorMap::Add(std::span<const FileTensor> tensors) {
  for (const FileTensor& tensor : tensors) {
    if (!map_.try_emplace(tensor.name, Entry{&tensor}).second) {
      return kernels::InvalidArgument(
          Message(source_, ": tensor ", tensor.name, " occurs twice"));
    }
  }
  return kernels::OkStatus();
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::Take(
    const std::string& name, std::span<const std::int64_t> shape) {
  const auto found = map_.find(name);
  if (found == map_.end()) {
    return kernels::NotFound(
        Message(source_, ": tensor ", name, " is missing"));
  }
  const FileTensor& tensor = *found->second.tensor;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                  tensor.shape.end())) {
    return kernels::InvalidArgument(Message(
        source_, ": tensor ", name, " has shape ", ShapeText(tensor.shape),
        ", the configuration asks for ", ShapeText(shape)));
  }
  HF_RETURN_IF_ERROR(CheckFinite(source_, tensor));
  found->second.used = true;
  kernels::WeightTensor weight;
  weight.name = name;
  weight.type = tensor.type;
  weight.rows = shape.size() == 1 ? 1 : shape.front();
  weight.cols = shape.back();
  weight.data = tensor.data;
  return weight;
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::TakeMatrix(
    const std::string& name, std::int64_t rows, std::int64_t cols) {
  return Take(name, std::array{rows, cols});
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::TakeVector(
    const std::string& name, std::int64_t size) {
  return Take(name, std::array{size});
}

void TensorMap::Ignore(const std::string& name) {
  if (const auto found = map_.find(name); found != map_.end()) {
    found->second.used = true;
  }
}

std::optional<std::string> TensorMap::FirstUnused() const {
  std::optional<std::string> first;
  for (const auto& [name, entry] : map_) {
    if (!entry.used && (!first || name < *first)) first = name;
  }
  return first;
}

}  // namespace holdfast::model
