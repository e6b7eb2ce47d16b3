#include "engine/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "engine/model/json.h"
#include "engine/model/message.h"

namespace holdfast::model {

static_assert(std::endian::native == std::endian::little,
              "weights are used as they lie in the file");

namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::WeightType;

constexpr std::size_t kHeadBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's limit

std::optional<WeightType> TypeOf(std::string_view dtype) {
  if (dtype == "F32") return WeightType::kF32;
  if (dtype == "F16") return WeightType::kF16;
  if (dtype == "BF16") return WeightType::kBF16;
  if (dtype == "F8_E4M3") return WeightType::kF8E4M3;
  return std::nullopt;
}

// A tensor's description in the header, with its range in the data section.
struct Entry {
  FileTensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

kernels::StatusOr<Entry> ParseEntry(const std::string& path,
                                    std::string_view name, JsonValue value) {
  const auto broken = [&](const auto&... what) {
    return InvalidArgument(Message(path, ": tensor ", name, ": ", what...));
  };
  Entry entry;
  entry.tensor.name = std::string(name);
  const auto dtype = value.Find("dtype");
  const auto shape = value.Find("shape");
  const auto offsets = value.Find("data_offsets");
  if (!dtype || !dtype->is_string() || !shape || !shape->is_array() ||
      !offsets || !offsets->is_array() || offsets->size() != 2) {
    return broken("needs dtype, shape and two data_offsets");
  }
  const auto type = TypeOf(dtype->string());
  if (!type) {
    return kernels::Unimplemented(
        Message(path, ": tensor ", name, " has type ", dtype->string(),
                ", which is not supported (F32, F16, BF16, F8_E4M3)"));
  }
  entry.tensor.type = *type;
  for (JsonValue size : shape->elements()) {
    entry.tensor.shape.push_back(size.integer().value_or(0));
  }
  // A single number may have no dimensions.
  if (entry.tensor.shape.empty()) entry.tensor.shape.push_back(1);
  const auto bytes = TensorBytes(*type, entry.tensor.shape);
  if (!bytes) return broken("shape ", ShapeText(entry.tensor.shape));
  entry.tensor.bytes = *bytes;
  auto offset = offsets->elements().begin();
  entry.begin = (*offset).integer().value_or(-1);
  ++offset;
  entry.end = (*offset).integer().value_or(-1);
  if (entry.begin < 0 || entry.end < entry.begin ||
      static_cast<std::size_t>(entry.end - entry.begin) != *bytes) {
    return broken("data_offsets do not hold its ", *bytes, " bytes");
  }
  return entry;
}

}  // namespace

kernels::StatusOr<SafetensorsFile> SafetensorsFile::Open(
    const std::string& path) {
  HF_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(std::move(mapped));
  const std::size_t size = file.file_.size();
  std::uint64_t header = 0;
  if (size < kHeadBytes) {
    return InvalidArgument(Message(path, ": too short for a safetensors file"));
  }
  std::memcpy(&header, file.file_.data(), sizeof header);
  if (header > kMaxHeaderBytes || header > size - kHeadBytes) {
    return InvalidArgument(Message(path, ": safetensors header of ", header,
                                   " bytes is past the file's end"));
  }
  HF_ASSIGN_OR_RETURN(
      const JsonDocument document,
      JsonDocument::Parse(file.file_.text().substr(kHeadBytes, header), path));
  if (!document.root().is_object()) {
    return InvalidArgument(Message(path, ": the header is not an object"));
  }
  std::vector<Entry> entries;
  for (auto [name, value] : document.root().members()) {
    if (name == "__metadata__") continue;
    HF_ASSIGN_OR_RETURN(Entry entry, ParseEntry(path, name, value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  const std::byte* data = file.file_.data() + kHeadBytes + header;
  const auto room = static_cast<std::int64_t>(size - kHeadBytes - header);
  std::int64_t expected = 0;
  for (Entry& entry : entries) {
    if (entry.begin != expected || entry.end > room) {
      return InvalidArgument(
          Message(path, ": tensor ", entry.tensor.name, " at bytes ",
                  entry.begin, " to ", entry.end, " of ", room,
                  " overlaps, leaves a gap or is past the file's end"));
    }
    expected = entry.end;
    entry.tensor.data = data + entry.begin;
    file.tensors_.push_back(std::move(entry.tensor));
  }
  if (expected != room) {
    return InvalidArgument(
        Message(path, ": ", room - expected, " bytes after the last tensor"));
  }
  return file;
}

}  // namespace holdfast::model
