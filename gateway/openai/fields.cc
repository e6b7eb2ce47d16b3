#include "gateway/openai/fields.h"

#include <cmath>
#include <utility>

#include "fmt/format.h"

namespace holdfast::openai {

const Json* Fields::Find(const char* name) const {
  if (error_) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::Path(const char* name) const {
  return path_.empty() ? name : path_ + "." + name;
}

void Fields::Fail(const char* name, std::string message) {
  if (!error_) error_ = FieldError(Path(name), std::move(message));
}

void Fields::Bool(const char* name, bool* out) {
  const Json* json = Find(name);
  if (json == nullptr) return;
  if (!json->is_boolean()) {
    return Fail(name,
                fmt::format("must be a boolean, not {}", TypeName(*json)));
  }
  *out = json->get<bool>();
}

void Fields::Float(const char* name, double min, double max, float* out) {
  const Json* json = Find(name);
  if (json == nullptr) return;
  if (!json->is_number()) {
    return Fail(name, fmt::format("must be a number, not {}", TypeName(*json)));
  }
  const double value = json->get<double>();
  if (!(value >= min && value <= max)) {
    return Fail(name, fmt::format("must be between {} and {}", min, max));
  }
  *out = static_cast<float>(value);
}

void Fields::Uint(const char* name, std::uint64_t min, std::uint64_t max,
                  std::optional<std::uint32_t>* out) {
  const Json* json = Find(name);
  if (json == nullptr) return;
  if (!json->is_number()) {
    return Fail(name,
                fmt::format("must be an integer, not {}", TypeName(*json)));
  }
  const std::optional<std::uint64_t> value = WholeNumber(*json, min, max);
  if (!value) {
    return Fail(name, fmt::format("must be a whole number between {} and {}",
                                  min, max));
  }
  *out = static_cast<std::uint32_t>(*value);
}

void Fields::String(const char* name, std::size_t max_bytes, std::string* out) {
  const Json* json = Find(name);
  if (json == nullptr) return;
  if (!json->is_string()) {
    return Fail(name, fmt::format("must be a string, not {}", TypeName(*json)));
  }
  const auto& text = json->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    return Fail(name, fmt::format("is over {} bytes long", max_bytes));
  }
  *out = text;
}

const char* TypeName(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return "a number";
    default:
      return "null";
  }
}

std::optional<std::uint64_t> WholeNumber(const Json& json, std::uint64_t min,
                                         std::uint64_t max) {
  std::uint64_t value = 0;
  if (json.is_number_unsigned()) {
    value = json.get<std::uint64_t>();
  } else if (json.is_number_float()) {
    const double number = json.get<double>();
    // Past 2^53 a double does not say which integer was meant.
    if (!(number >= 0 && number <= 9007199254740992.0) ||
        number != std::floor(number)) {
      return std::nullopt;
    }
    value = static_cast<std::uint64_t>(number);
  } else {
    return std::nullopt;  // negative integers are of their own type
  }
  if (value < min || value > max) return std::nullopt;
  return value;
}

ApiOr<std::vector<std::uint32_t>> TokenIds(const Json& json,
                                           const std::string& path,
                                           std::uint64_t vocab_size) {
  if (!json.is_array()) {
    return FieldError(path, fmt::format("must be an array of token ids, not {}",
                                        TypeName(json)));
  }
  std::vector<std::uint32_t> ids;
  ids.reserve(json.size());
  for (const Json& entry : json) {
    const std::optional<std::uint64_t> id =
        vocab_size == 0 ? std::nullopt : WholeNumber(entry, 0, vocab_size - 1);
    if (!id) {
      return FieldError(fmt::format("{}[{}]", path, ids.size()),
                        fmt::format("must be a token id below {}", vocab_size));
    }
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return ids;
}

}  // namespace holdfast::openai
