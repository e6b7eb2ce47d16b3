#include "gateway/openai/json.h"

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace holdfast::openai {
namespace {

// Builds the value while it is read. nlohmann's own builder looks every key up
// in a list, which costs the square of an object's keys; this one appends, and
// looks for double keys once, when the object ends.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json TakeValue() { return std::move(root_); }
  ApiError TakeError() { return std::move(error_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(std::int64_t value) override { return Add(value); }
  bool number_unsigned(std::uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // never in text

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool key(std::string& key) override {
    open_.back().key = std::move(key);
    return true;
  }
  bool end_object() override {
    KeepLastOfDoubleKeys(open_.back().value);
    return Close();
  }
  bool end_array() override { return Close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();
    const auto says = [what](std::string_view text) {
      return what.find(text) != std::string_view::npos;
    };
    std::string message = fmt::format("invalid JSON at byte {}", position);
    if (says("ill-formed UTF-8")) {
      message = fmt::format("invalid UTF-8 at byte {}", position);
    } else if (says("surrogate")) {
      message = fmt::format("half a surrogate pair at byte {}", position);
    } else if (says("number overflow")) {
      message = "a number is out of range";
    }
    error_ = FieldError(Path(), message);
    error_.code = "invalid_json";
    return false;
  }

 private:
  struct Level {
    Json* value;
    std::string key;  // of the value being read; empty between two
  };

  // The value being read: messages[2].content.
  std::string Path() const {
    std::string path;
    for (const Level& level : open_) {
      if (level.value->is_array()) {
        const std::size_t begun = &level == &open_.back() ? 0 : 1;
        path += fmt::format("[{}]", level.value->size() - begun);
      } else if (!level.key.empty()) {
        path += path.empty() ? level.key : "." + level.key;
      }
    }
    return path;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth) {
      error_ = FieldError(
          Path(), fmt::format("nested deeper than {} levels", limits_.depth));
      error_.code = "invalid_json";
      return false;
    }
    open_.push_back({Append(std::move(container)), ""});
    return true;
  }

  bool Close() {
    open_.pop_back();
    if (!open_.empty()) open_.back().key.clear();
    return true;
  }

  bool Add(Json value) {
    Append(std::move(value));
    if (!open_.empty()) open_.back().key.clear();
    return true;
  }

  // Pointers to open containers stay good: what contains them does not grow
  // before they are closed.
  Json* Append(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    auto& object = level.value->get_ref<Json::object_t&>();
    object.push_back(Json::object_t::value_type(level.key, std::move(value)));
    return &object.back().second;
  }

  static void KeepLastOfDoubleKeys(Json* value) {
    auto& object = value->get_ref<Json::object_t&>();
    std::unordered_map<std::string_view, std::size_t> places;
    places.reserve(object.size());
    for (const auto& [key, item] : object) places.emplace(key, places.size());
    if (places.size() == object.size()) return;

    Json::object_t kept;
    places.clear();
    for (auto& [key, item] : object) {
      const auto [place, is_new] = places.emplace(key, places.size());
      if (is_new) {
        kept.push_back(Json::object_t::value_type(key, std::move(item)));
      } else {
        (kept.begin() + static_cast<std::ptrdiff_t>(place->second))->second =
            std::move(item);
      }
    }
    object = std::move(kept);
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Level> open_;
  ApiError error_;
};

void AppendLikePython(const Json& json, std::string* out) {
  if (json.is_object()) {
    out->push_back('{');
    const char* separator = "";
    for (const auto& [key, value] : json.items()) {
      *out += separator;
      *out += Dump(Json(key));
      *out += ": ";
      AppendLikePython(value, out);
      separator = ", ";
    }
    out->push_back('}');
  } else if (json.is_array()) {
    out->push_back('[');
    const char* separator = "";
    for (const Json& value : json) {
      *out += separator;
      AppendLikePython(value, out);
      separator = ", ";
    }
    out->push_back(']');
  } else {
    *out += Dump(json);
  }
}

}  // namespace

ApiOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    ApiError error = FieldError("", "the request's body is empty, not JSON");
    error.code = "invalid_json";
    return error;
  }
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return builder.TakeError();
  }
  return builder.TakeValue();
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DumpLikePython(const Json& json) {
  std::string out;
  AppendLikePython(json, &out);
  return out;
}

}  // namespace holdfast::openai
