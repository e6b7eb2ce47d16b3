// Reads GGUF files (versions 2 and 3, little-endian) over a read-only mapping.
// Every length, count, offset and product is checked before it is used; errors
// name the file and the key or tensor.
#ifndef HOLDFAST_ENGINE_MODEL_GGUF_H_
#define HOLDFAST_ENGINE_MODEL_GGUF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/model/mapped_file.h"
#include "engine/model/tensors.h"
#include "kernels/status.h"

namespace holdfast::model {

// Numbers are the file's.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// A metadata value; points into the file's mapping.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element = GgufType::kUint8;    // of an array
  std::uint64_t count = 1;                // elements of an array
  const std::byte* data = nullptr;        // fixed-size value or elements
  std::vector<std::string_view> strings;  // of a string, or array of strings
};

// Immutable; owns the mapping that tensors and values point into.
class GgufFile {
 public:
  // Checks the whole header and that every tensor's bytes lie in the file and
  // apart. A tensor of a type that nothing here computes is an error.
  static kernels::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<FileTensor>& tensors() const { return tensors_; }

  bool Has(const std::string& key) const { return values_.contains(key); }
  // Keys in the file's order.
  const std::vector<std::string>& keys() const { return keys_; }

  // The value of a key, nothing when it is absent; an error that names the key
  // when it has another type (any integer type serves as an integer).
  template <typename T>
  using Maybe = kernels::StatusOr<std::optional<T>>;
  Maybe<std::int64_t> Integer(const std::string& key) const;
  Maybe<double> Number(const std::string& key) const;  // float or integer
  Maybe<bool> Bool(const std::string& key) const;
  Maybe<std::string_view> String(const std::string& key) const;
  Maybe<std::vector<std::int64_t>> Integers(const std::string& key) const;
  // Points into this file; null when absent.
  kernels::StatusOr<const std::vector<std::string_view>*> Strings(
      const std::string& key) const;

 private:
  friend class GgufParser;
  explicit GgufFile(MappedFile file) : file_(std::move(file)) {}
  kernels::Status WrongType(const std::string& key, const char* wanted) const;
  const GgufValue* Find(const std::string& key) const;

  MappedFile file_;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, GgufValue> values_;
  std::vector<FileTensor> tensors_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_GGUF_H_
