#include "engine/model/tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/model/message.h"
#include "kernels/float16.h"

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

bool AnyNanF8(const std::byte* data, std::size_t count) {
  constexpr std::byte kNan{0x7f};
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) found |= (data[i] & kNan) == kNan;
  return found;
}

// Where a block of quanta has its half scale and, right behind, a half minimum.
struct Halves {
  std::size_t at = 0;
  int count = 1;
};

Halves HalvesOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      return {0, 2};
    case WeightType::kQ6_K:
      return {208, 1};
    default:
      return {};
  }
}

bool AnyNonFinite(WeightType type, const std::byte* data, std::size_t bytes) {
  constexpr std::uint16_t kHalf = 0x7c00;
  constexpr std::uint16_t kBrain = 0x7f80;
  switch (type) {
    case WeightType::kF32:
      return AnyNonFinite32(data, bytes / 4);
    case WeightType::kF16:
      return AnyNonFinite16(data, bytes / 2, 2, kHalf);
    case WeightType::kBF16:
      return AnyNonFinite16(data, bytes / 2, 2, kBrain);
    case WeightType::kF8E4M3:
      return AnyNanF8(data, bytes);
    default:
      break;
  }
  const std::size_t block =
      kernels::WeightRowBytes(type, kernels::WeightBlock(type));
  const Halves halves = HalvesOf(type);
  for (int i = 0; i < halves.count; ++i) {
    if (AnyNonFinite16(data + halves.at + 2 * i, bytes / block, block, kHalf)) {
      return true;
    }
  }
  return false;
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
  constexpr std::size_t kMaxDimensions = 8;
  if (shape.empty() || shape.size() > kMaxDimensions) return std::nullopt;
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

kernels::Status AppendFloats(const std::string& file,
                             const kernels::WeightTensor& tensor,
                             std::vector<float>* out) {
  const std::size_t size = kernels::WeightRowBytes(tensor.type, 1);
  if (size == 0) {
    return kernels::Unimplemented(
        Message(file, ": tensor ", tensor.name, " is a vector of type ",
                kernels::WeightTypeName(tensor.type)));
  }
  for (std::int64_t i = 0; i < tensor.rows * tensor.cols; ++i) {
    const std::byte* from =
        tensor.data +
        size * (tensor.row_order.empty() ? i : tensor.row_order[i]);
    if (tensor.type == WeightType::kF32) {
      float value;
      std::memcpy(&value, from, sizeof value);
      out->push_back(value);
    } else {
      out->push_back(tensor.type == WeightType::kF16
                         ? kernels::F16ToFloat(LoadU16(from))
                         : kernels::Bf16ToFloat(LoadU16(from)));
    }
  }
  return kernels::OkStatus();
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
  weight.rows = 1;
  for (std::int64_t size : shape.first(shape.size() - 1)) weight.rows *= size;
  weight.cols = shape.back();
  weight.data = tensor.data;
  return weight;
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::TakeMatrix(
    const std::string& name, std::int64_t rows, std::int64_t cols) {
  HF_ASSIGN_OR_RETURN(kernels::WeightTensor weight,
                      Take(name, std::array{rows, cols}));
  if (weight.type == WeightType::kF8E4M3) {
    HF_RETURN_IF_ERROR(TakeScales(&weight));
  }
  return weight;
}

kernels::Status TensorMap::TakeScales(kernels::WeightTensor* weight) {
  constexpr std::int64_t kBlock = 128;
  std::string name = weight->name + "_scale_inv";
  if (!Has(name)) name = weight->name + "_scale";
  const auto found = map_.find(name);
  if (found == map_.end()) {
    return kernels::NotFound(Message(source_, ": tensor ", weight->name,
                                     " (F8_E4M3) has no scales ", weight->name,
                                     "_scale_inv or _scale"));
  }
  const FileTensor& file = *found->second.tensor;
  const bool single = file.shape == std::vector<std::int64_t>{1};
  weight->scale_rows = single ? weight->rows : kBlock;
  weight->scale_cols = single ? weight->cols : kBlock;
  const std::array wanted = {(weight->rows + kBlock - 1) / kBlock,
                             (weight->cols + kBlock - 1) / kBlock};
  HF_ASSIGN_OR_RETURN(const kernels::WeightTensor scales,
                      single ? Take(name, file.shape) : Take(name, wanted));
  HF_RETURN_IF_ERROR(AppendFloats(source_, scales, &weight->scales));
  for (const float scale : weight->scales) {
    if (!(std::fabs(scale) < kernels::kF8ScaleBound)) {
      return kernels::InvalidArgument(Message(source_, ": tensor ", name,
                                              " holds ", scale,
                                              ", which is too large"));
    }
  }
  return kernels::OkStatus();
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::TakeVector(
    const std::string& name, std::int64_t size) {
  return Take(name, std::array{size});
}

kernels::StatusOr<kernels::WeightTensor> TensorMap::TakeShaped(
    const std::string& name, std::span<const std::int64_t> shape) {
  HF_ASSIGN_OR_RETURN(const kernels::WeightTensor weight, Take(name, shape));
  if (weight.type == WeightType::kF8E4M3) {
    return kernels::Unimplemented(
        Message(source_, ": tensor ", name, " ", ShapeText(shape),
                " is of type F8_E4M3, which only matrices can be"));
  }
  return weight;
}

void TensorMap::Ignore(const std::string& name) {
  if (const auto found = map_.find(name); found != map_.end()) {
    found->second.used = true;
  }
}

void TensorMap::IgnorePrefix(std::string_view prefix) {
  for (auto& [name, entry] : map_) entry.used |= name.starts_with(prefix);
}

std::optional<std::string> TensorMap::FirstUnused() const {
  std::optional<std::string> first;
  for (const auto& [name, entry] : map_) {
    if (!entry.used && (!first || name < *first)) first = name;
  }
  return first;
}

}  // namespace holdfast::model
