#include "engine/model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/model/message.h"

namespace holdfast::model {

static_assert(std::endian::native == std::endian::little,
              "weights and metadata are used as they lie in the file");

namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::WeightType;

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::size_t kDefaultAlignment = 32;
constexpr std::size_t kMaxAlignment = 1 << 20;
constexpr std::size_t kMaxNameBytes = 65535;
// The least that a key with its value, and a tensor, take in the header.
constexpr std::size_t kMinValueBytes = 8 + 1 + 4 + 1;
constexpr std::size_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// 0 for strings, arrays and what is no type.
std::size_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

struct TensorType {
  std::uint32_t number;
  const char* name;
  std::optional<WeightType> type;
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", WeightType::kF32},    {1, "F16", WeightType::kF16},
    {2, "Q4_0", WeightType::kQ4_0},  {3, "Q4_1", WeightType::kQ4_1},
    {6, "Q5_0", WeightType::kQ5_0},  {7, "Q5_1", WeightType::kQ5_1},
    {8, "Q8_0", WeightType::kQ8_0},  {9, "Q8_1", std::nullopt},
    {10, "Q2_K", std::nullopt},      {11, "Q3_K", std::nullopt},
    {12, "Q4_K", WeightType::kQ4_K}, {13, "Q5_K", WeightType::kQ5_K},
    {14, "Q6_K", WeightType::kQ6_K}, {15, "Q8_K", std::nullopt},
    {20, "IQ4_NL", std::nullopt},    {23, "IQ4_XS", std::nullopt},
    {30, "BF16", WeightType::kBF16}, {39, "MXFP4", std::nullopt},
};

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Any integer type; none for others, and for a uint64 past int64.
std::optional<std::int64_t> LoadInteger(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kUint8:
      return Load<std::uint8_t>(from);
    case GgufType::kInt8:
      return Load<std::int8_t>(from);
    case GgufType::kUint16:
      return Load<std::uint16_t>(from);
    case GgufType::kInt16:
      return Load<std::int16_t>(from);
    case GgufType::kUint32:
      return Load<std::uint32_t>(from);
    case GgufType::kInt32:
      return Load<std::int32_t>(from);
    case GgufType::kInt64:
      return Load<std::int64_t>(from);
    case GgufType::kUint64: {
      const auto value = Load<std::uint64_t>(from);
      if (value > static_cast<std::uint64_t>(
                      std::numeric_limits<std::int64_t>::max())) {
        return std::nullopt;
      }
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

// Walks the header once and fills in a GgufFile.
class GgufParser {
 public:
  explicit GgufParser(GgufFile* file)
      : file_(*file), data_(file->file_.data()), size_(file->file_.size()) {}

  Status Parse() {
    HF_RETURN_IF_ERROR(ParseHead());
    for (std::uint64_t i = 0; i < value_count_; ++i) {
      HF_RETURN_IF_ERROR(ParseKeyValue());
    }
    HF_RETURN_IF_ERROR(ReadAlignment());
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      HF_RETURN_IF_ERROR(ParseTensor());
    }
    return PlaceTensors();
  }

 private:
  template <typename... Parts>
  Status Broken(const Parts&... parts) const {
    return InvalidArgument(Message(file_.path(), ": ", parts...));
  }
  Status Short(const std::string& object) const {
    return Broken("the file ends inside ", object);
  }
  std::size_t Left() const { return size_ - at_; }

  template <typename T>
  bool Read(T* value) {
    if (Left() < sizeof(T)) return false;
    *value = Load<T>(data_ + at_);
    at_ += sizeof(T);
    return true;
  }

  bool ReadString(std::string_view* value) {
    std::uint64_t size = 0;
    if (!Read(&size) || size > Left()) return false;
    *value = {reinterpret_cast<const char*>(data_ + at_),
              static_cast<std::size_t>(size)};
    at_ += size;
    return true;
  }

  Status ParseHead() {
    std::uint32_t magic = 0, version = 0;
    if (!Read(&magic) || magic != kMagic) return Broken("not a GGUF file");
    if (!Read(&version)) return Short("the file head");
    if (version != 2 && version != 3) {
      if ((version & 0xffff) == 0) {
        return Broken("a big-endian GGUF file is not supported");
      }
      return Broken("GGUF version ", version, " is not supported (2, 3)");
    }
    if (!Read(&tensor_count_) || !Read(&value_count_)) {
      return Short("the file head");
    }
    if (value_count_ > Left() / kMinValueBytes) {
      return Broken("metadata count ", value_count_, " is past the file's end");
    }
    if (tensor_count_ > Left() / kMinTensorBytes) {
      return Broken("tensor count ", tensor_count_, " is past the file's end");
    }
    return kernels::OkStatus();
  }

  Status ParseKeyValue() {
    std::string_view text;
    if (!ReadString(&text) || text.empty() || text.size() > kMaxNameBytes) {
      return Broken("metadata key ", file_.keys_.size(), " is broken");
    }
    const std::string key(text);
    GgufValue value;
    if (!Read(&value.type)) return Short("metadata key " + key);
    if (value.type == GgufType::kArray) {
      HF_RETURN_IF_ERROR(ParseArray(key, &value));
    } else {
      HF_RETURN_IF_ERROR(ParseElements(key, value.type, 1, &value));
    }
    if (!file_.values_.try_emplace(key, std::move(value)).second) {
      return Broken("metadata key ", key, " occurs twice");
    }
    file_.keys_.push_back(key);
    return kernels::OkStatus();
  }

  Status ParseArray(const std::string& key, GgufValue* value) {
    if (!Read(&value->element) || !Read(&value->count)) {
      return Short("metadata key " + key);
    }
    if (value->element == GgufType::kArray) {
      return Broken("metadata key ", key, " is an array of arrays");
    }
    return ParseElements(key, value->element, value->count, value);
  }

  Status ParseElements(const std::string& key, GgufType type,
                       std::uint64_t count, GgufValue* value) {
    if (type == GgufType::kString) {
      if (count > Left() / sizeof(std::uint64_t)) {
        return Short("metadata key " + key);
      }
      value->strings.resize(count);
      for (std::string_view& text : value->strings) {
        if (!ReadString(&text)) return Short("metadata key " + key);
      }
      return kernels::OkStatus();
    }
    const std::size_t bytes = ScalarBytes(type);
    if (bytes == 0) {
      return Broken("metadata key ", key, " has unknown type ",
                    static_cast<std::uint32_t>(type));
    }
    if (count > Left() / bytes) return Short("metadata key " + key);
    value->data = data_ + at_;
    at_ += count * bytes;
    return kernels::OkStatus();
  }

  Status ReadAlignment() {
    alignment_ = kDefaultAlignment;
    HF_ASSIGN_OR_RETURN(const auto alignment,
                        file_.Integer("general.alignment"));
    if (!alignment) return kernels::OkStatus();
    if (*alignment < 1 || *alignment > static_cast<int>(kMaxAlignment) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*alignment))) {
      return Broken("general.alignment is ", *alignment,
                    ", not a power of two up to ", kMaxAlignment);
    }
    alignment_ = static_cast<std::size_t>(*alignment);
    return kernels::OkStatus();
  }

  Status ParseTensor() {
    std::string_view text;
    if (!ReadString(&text) || text.empty() || text.size() > kMaxNameBytes) {
      return Broken("the name of tensor ", file_.tensors_.size(), " is broken");
    }
    FileTensor tensor;
    tensor.name = std::string(text);
    std::uint32_t dimensions = 0;
    if (!Read(&dimensions)) return Short("tensor " + tensor.name);
    if (dimensions < 1 || dimensions > 4) {
      return Broken("tensor ", tensor.name, " has ", dimensions, " dimensions");
    }
    tensor.shape.resize(dimensions);
    // The file has the fastest dimension first.
    for (std::size_t i = dimensions; i-- > 0;) {
      std::uint64_t size = 0;
      if (!Read(&size)) return Short("tensor " + tensor.name);
      if (size < 1 || size > std::numeric_limits<std::int32_t>::max()) {
        return Broken("tensor ", tensor.name, " has a dimension of ", size);
      }
      tensor.shape[i] = static_cast<std::int64_t>(size);
    }
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    if (!Read(&type) || !Read(&offset)) return Short("tensor " + tensor.name);
    HF_RETURN_IF_ERROR(SetType(type, &tensor));
    offsets_.push_back(offset);
    file_.tensors_.push_back(std::move(tensor));
    return kernels::OkStatus();
  }

  Status SetType(std::uint32_t number, FileTensor* tensor) const {
    const auto* known =
        std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                     [&](const TensorType& t) { return t.number == number; });
    if (known == std::end(kTensorTypes) || !known->type) {
      return kernels::Unimplemented(Message(
          file_.path(), ": tensor ", tensor->name, " has type ",
          known == std::end(kTensorTypes) ? std::to_string(number)
                                          : std::string(known->name),
          ", which is not supported (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
          "Q5_1, Q4_K, Q5_K, Q6_K)"));
    }
    tensor->type = *known->type;
    const auto bytes = TensorBytes(tensor->type, tensor->shape);
    if (!bytes) {
      return Broken("tensor ", tensor->name, ": shape ",
                    ShapeText(tensor->shape), " does not fit type ",
                    known->name);
    }
    tensor->bytes = *bytes;
    return kernels::OkStatus();
  }

  // Turns offsets into pointers once the data section's start is known.
  Status PlaceTensors() {
    std::vector<FileTensor>& tensors = file_.tensors_;
    const std::size_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const std::size_t room = start <= size_ ? size_ - start : 0;
    std::vector<std::size_t> order(tensors.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      FileTensor& tensor = tensors[i];
      if (offsets_[i] % alignment_ != 0) {
        return Broken("tensor ", tensor.name, " starts at offset ", offsets_[i],
                      ", not a multiple of ", alignment_);
      }
      if (offsets_[i] > room || tensor.bytes > room - offsets_[i]) {
        return Broken("tensor ", tensor.name, " (", tensor.bytes,
                      " bytes at offset ", offsets_[i],
                      ") is past the file's end");
      }
      tensor.data = data_ + start + offsets_[i];
      order[i] = i;
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return offsets_[a] < offsets_[b];
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const FileTensor& before = tensors[order[i - 1]];
      const FileTensor& after = tensors[order[i]];
      if (before.data + before.bytes > after.data) {
        return Broken("tensors ", before.name, " and ", after.name, " overlap");
      }
    }
    return kernels::OkStatus();
  }

  GgufFile& file_;
  const std::byte* data_;
  std::size_t size_;
  std::size_t at_ = 0;
  std::uint64_t value_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::size_t alignment_ = kDefaultAlignment;
  std::vector<std::uint64_t> offsets_;  // of tensors, in their order
};

kernels::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  HF_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  GgufFile file(std::move(mapped));
  HF_RETURN_IF_ERROR(GgufParser(&file).Parse());
  std::vector<std::string> names;
  for (const FileTensor& tensor : file.tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return InvalidArgument(Message(path, ": tensor ", *twice, " occurs twice"));
  }
  return file;
}

const GgufValue* GgufFile::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Status GgufFile::WrongType(const std::string& key, const char* wanted) const {
  return InvalidArgument(
      Message(path(), ": metadata key ", key, " is not ", wanted));
}

GgufFile::Maybe<std::int64_t> GgufFile::Integer(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const auto integer = LoadInteger(value->type, value->data);
  if (!integer) return WrongType(key, "an integer");
  return integer;
}

GgufFile::Maybe<double> GgufFile::Number(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == GgufType::kFloat32) {
    return std::optional<double>(Load<float>(value->data));
  }
  if (value->type == GgufType::kFloat64) {
    return std::optional<double>(Load<double>(value->data));
  }
  const auto integer = LoadInteger(value->type, value->data);
  if (!integer) return WrongType(key, "a number");
  return std::optional<double>(static_cast<double>(*integer));
}

GgufFile::Maybe<bool> GgufFile::Bool(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return WrongType(key, "a boolean");
  return std::optional<bool>(*value->data != std::byte{0});
}

GgufFile::Maybe<std::string_view> GgufFile::String(
    const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::kString) return WrongType(key, "a string");
  return std::optional<std::string_view>(value->strings.front());
}

GgufFile::Maybe<std::vector<std::int64_t>> GgufFile::Integers(
    const std::string& key) const {
  using Result = std::optional<std::vector<std::int64_t>>;
  const GgufValue* value = Find(key);
  if (value == nullptr) return Result();
  if (value->type != GgufType::kArray || value->data == nullptr) {
    return WrongType(key, "an array of integers");
  }
  std::vector<std::int64_t> integers(value->count);
  const std::size_t bytes = ScalarBytes(value->element);
  for (std::size_t i = 0; i < integers.size(); ++i) {
    const auto one = LoadInteger(value->element, value->data + i * bytes);
    if (!one) return WrongType(key, "an array of integers");
    integers[i] = *one;
  }
  return Result(std::move(integers));
}

kernels::StatusOr<const std::vector<std::string_view>*> GgufFile::Strings(
    const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return static_cast<decltype(&value->strings)>(nullptr);
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return WrongType(key, "an array of strings");
  }
  return &value->strings;
}

}  // namespace holdfast::model
