// What a request's tools say about the types of their parameters.
#ifndef HOLDFAST_GATEWAY_ANSWER_TOOLS_H_
#define HOLDFAST_GATEWAY_ANSWER_TOOLS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"

namespace holdfast::answer {

using Json = nlohmann::ordered_json;

// A set of JSON types.
using Types = std::uint8_t;
inline constexpr Types kString = 1;
inline constexpr Types kNumber = 2;
inline constexpr Types kBoolean = 4;
inline constexpr Types kNull = 8;
inline constexpr Types kObject = 16;
inline constexpr Types kArray = 32;
inline constexpr Types kAnyType = 63;

// The tools of one request. Immutable; thread-safe.
class Tools {
 public:
  // `tools` as the client sent them: an array of {"function": {"name",
  // "parameters"}}.
  explicit Tools(Json tools) : tools_(std::move(tools)) {}

  // What the JSON schema of a parameter allows. Of a function or a parameter
  // that no tool has: a string.
  Types TypesOf(std::string_view function, std::string_view parameter) const;

 private:
  const Json tools_;
};

// A parameter that the model wrote as text, as JSON: a value of an allowed type
// as it is written (True, False and None as Python writes them, too), anything
// else as a string.
std::string ToJson(std::string_view text, Types types);

// The inside of a JSON string. `text` is whole characters.
std::string EscapeJson(std::string_view text);

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_TOOLS_H_
