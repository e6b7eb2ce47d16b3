#include "engine/model/testing/gguf_writer.h"

#include <utility>

namespace holdfast::model::testing {
namespace {

constexpr std::size_t kAlignment = 32;
// Type numbers of the format.
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8,
                        kArray = 9;

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PutString(std::string_view value, std::string* out) {
  Put<std::uint64_t>(value.size(), out);
  out->append(value);
}

std::uint32_t TypeNumber(kernels::WeightType type) {
  switch (type) {
    case kernels::WeightType::kF32:
      return 0;
    case kernels::WeightType::kF16:
      return 1;
    case kernels::WeightType::kBF16:
      return 30;
    case kernels::WeightType::kQ8_0:
      return 8;
    case kernels::WeightType::kQ4_0:
      return 2;
    case kernels::WeightType::kQ4_1:
      return 3;
    case kernels::WeightType::kQ5_0:
      return 6;
    case kernels::WeightType::kQ5_1:
      return 7;
    case kernels::WeightType::kQ4_K:
      return 12;
    case kernels::WeightType::kQ5_K:
      return 13;
    case kernels::WeightType::kQ6_K:
      return 14;
    case kernels::WeightType::kF8E4M3:
      break;  // the format has no such type
  }
  return 0;
}

void Align(std::string* out) {
  out->resize((out->size() + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

void GgufWriter::AddKey(std::string_view key, std::uint32_t type) {
  ++values_;
  PutString(key, &metadata_);
  Put(type, &metadata_);
}

void GgufWriter::AddU32(std::string_view key, std::uint32_t value) {
  AddKey(key, kU32);
  Put(value, &metadata_);
}

void GgufWriter::AddF32(std::string_view key, float value) {
  AddKey(key, kF32);
  Put(value, &metadata_);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  AddKey(key, kBool);
  Put<std::uint8_t>(value ? 1 : 0, &metadata_);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddKey(key, kString);
  PutString(value, &metadata_);
}

void GgufWriter::AddStrings(std::string_view key,
                            std::span<const std::string> values) {
  AddKey(key, kArray);
  Put(kString, &metadata_);
  Put<std::uint64_t>(values.size(), &metadata_);
  for (const std::string& value : values) PutString(value, &metadata_);
}

void GgufWriter::AddInts(std::string_view key,
                         std::span<const std::int32_t> values) {
  AddKey(key, kArray);
  Put(kI32, &metadata_);
  Put<std::uint64_t>(values.size(), &metadata_);
  for (std::int32_t value : values) Put(value, &metadata_);
}

void GgufWriter::AddTensor(std::string_view name, kernels::WeightType type,
                           std::span<const std::int64_t> shape,
                           std::string bytes) {
  Tensor tensor;
  PutString(name, &tensor.head);
  Put(static_cast<std::uint32_t>(shape.size()), &tensor.head);
  for (std::size_t i = shape.size(); i-- > 0;) {
    Put(static_cast<std::uint64_t>(shape[i]), &tensor.head);
  }
  Put(TypeNumber(type), &tensor.head);
  tensor.bytes = std::move(bytes);
  tensors_.push_back(std::move(tensor));
}

std::string GgufWriter::Finish(std::size_t* header_bytes) const {
  std::string file = "GGUF";
  Put<std::uint32_t>(3, &file);
  Put<std::uint64_t>(tensors_.size(), &file);
  Put(values_, &file);
  file += metadata_;
  std::string data;
  for (const Tensor& tensor : tensors_) {
    Align(&data);
    file += tensor.head;
    Put<std::uint64_t>(data.size(), &file);
    data += tensor.bytes;
  }
  if (header_bytes != nullptr) *header_bytes = file.size();
  Align(&file);
  return file + data;
}

}  // namespace holdfast::model::testing
