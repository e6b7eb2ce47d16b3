// Typed access to the fields of a JSON object. Internal to gateway/openai.
#ifndef HOLDFAST_GATEWAY_OPENAI_FIELDS_H_
#define HOLDFAST_GATEWAY_OPENAI_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/openai/error.h"

namespace holdfast::openai {

// Reads fields of one object and keeps the first error; later reads do nothing
// then. A field that is absent or null leaves its variable alone. `object` and
// `error` must outlive the reader.
class Fields {
 public:
  // `path` names the object in errors; empty for the body itself.
  Fields(const Json& object, std::string path, std::optional<ApiError>* error)
      : object_(object), path_(std::move(path)), error_(*error) {}

  void Bool(const char* name, bool* out);
  void Float(const char* name, double min, double max, float* out);
  void Uint(const char* name, std::uint64_t min, std::uint64_t max,
            std::optional<std::uint32_t>* out);
  void String(const char* name, std::size_t max_bytes, std::string* out);

  // The field's value; null when absent, null, or after an error.
  const Json* Find(const char* name) const;
  std::string Path(const char* name) const;

  void Fail(const char* name, std::string message);
  bool failed() const { return error_.has_value(); }

 private:
  const Json& object_;
  const std::string path_;
  std::optional<ApiError>& error_;
};

// "a string", "an array", ... for "must be ..., not ..." messages.
const char* TypeName(const Json& json);

// A whole number in [min, max] (also written as 3.0); absent: it is none.
std::optional<std::uint64_t> WholeNumber(const Json& json, std::uint64_t min,
                                         std::uint64_t max);

// An array of token ids below `vocab_size`.
ApiOr<std::vector<std::uint32_t>> TokenIds(const Json& json,
                                           const std::string& path,
                                           std::uint64_t vocab_size);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_FIELDS_H_
