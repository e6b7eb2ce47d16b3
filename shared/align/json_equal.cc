#include "shared/align/json_equal.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace holdfast::align {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLevels = 256;
// Every integer up to it is a double of its own.
constexpr std::int64_t kMostOfDouble = std::int64_t{1} << 53;

bool IsInteger(const std::string& text) {
  return text.find_first_of(".eE") == std::string::npos;
}

// Builds a value; false from any of its calls ends the parse.
class Builder final : public nlohmann::json_sax<json> {
 public:
  std::optional<json> Take() { return std::move(whole_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override {
    if (value < -kMostOfDouble) return AddLong(std::to_string(value));
    return Add(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > std::uint64_t{kMostOfDouble})
      return AddLong(std::to_string(value));
    return Add(value);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (IsInteger(text)) return AddLong(text);
    return std::isfinite(value) && Add(value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool key(string_t& value) override {
    keys_.back() = std::move(value);
    return !open_.back().contains(keys_.back());
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Open(json empty) {
    if (open_.size() >= kMostLevels) return false;
    open_.push_back(std::move(empty));
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return Add(std::move(done));
  }
  // Longer than a double tells from its neighbours, which is what an integer is
  // compared as beside 1.0. A kind of value that no JSON text has keeps it from
  // equalling a string.
  bool AddLong(const std::string& digits) {
    return Add(json::binary({digits.begin(), digits.end()}));
  }
  bool Add(json value) {
    if (open_.empty()) {
      whole_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back()[keys_.back()] = std::move(value);
    }
    return true;
  }

  std::vector<json> open_;
  std::vector<std::string> keys_;  // of the objects among them
  std::optional<json> whole_;
};

std::optional<json> Parse(std::string_view text) {
  Builder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return builder.Take();
}

}  // namespace

bool EqualJson(std::string_view a, std::string_view b) {
  const std::optional<json> left = Parse(a);
  if (!left) return false;
  const std::optional<json> right = Parse(b);
  return right && *left == *right;
}

}  // namespace holdfast::align
