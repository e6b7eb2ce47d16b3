#include <limits>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/fields.h"
#include "gateway/openai/request.h"

namespace holdfast::openai {
namespace {

constexpr std::uint64_t kAnyId =
    std::uint64_t{std::numeric_limits<std::uint32_t>::max()} + 1;

ApiOr<std::vector<Json>> ForcedCalls(const Json& calls,
                                     const std::string& path) {
  if (!calls.is_array()) {
    return FieldError(path,
                      fmt::format("must be an array, not {}", TypeName(calls)));
  }
  std::vector<Json> result;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Json& call = calls[i];
    const std::string where = fmt::format("{}[{}]", path, i);
    if (!call.is_object()) return FieldError(where, "must be an object");
    const auto name = call.find("name");
    if (name == call.end() || !name->is_string()) {
      return FieldError(where + ".name", "must be a string");
    }
    const auto arguments = call.find("arguments");
    if (arguments == call.end() || !arguments->is_object()) {
      return FieldError(where + ".arguments", "must be an object");
    }
    result.push_back({{"name", *name}, {"arguments", *arguments}});
  }
  return result;
}

}  // namespace

ApiOr<Force> ParseForce(const Json& value, const std::string& path) {
  Force force;
  if (value.is_string()) {
    force.text = value.get<std::string>();
    return force;
  }
  if (!value.is_object()) {
    return FieldError(path, fmt::format("must be a string or an object, not {}",
                                        TypeName(value)));
  }
  std::optional<ApiError> error;
  Fields fields(value, path, &error);
  for (const auto& [key, field] : value.items()) {
    if (key != "ids" && key != "text" && key != "reasoning" &&
        key != "tool_calls" && key != "hold") {
      return FieldError(fields.Path(key.c_str()), "there is no such field");
    }
  }
  fields.Bool("hold", &force.hold);
  if (const Json* ids = fields.Find("ids")) {
    if (value.size() > (fields.Find("hold") != nullptr ? 2u : 1u)) {
      return FieldError(fields.Path("ids"), "stands alone");
    }
    ApiOr<std::vector<std::uint32_t>> parsed =
        TokenIds(*ids, fields.Path("ids"), kAnyId);
    if (!parsed.ok()) return parsed.error();
    if (error) return *std::move(error);
    force.ids = std::move(*parsed);
    return force;
  }
  fields.String("text", std::string::npos, &force.text);
  fields.String("reasoning", std::string::npos, &force.reasoning);
  if (const Json* calls = fields.Find("tool_calls")) {
    ApiOr<std::vector<Json>> parsed =
        ForcedCalls(*calls, fields.Path("tool_calls"));
    if (!parsed.ok()) return parsed.error();
    force.tool_calls = std::move(*parsed);
  }
  if (error) return *std::move(error);
  return force;
}

}  // namespace holdfast::openai
