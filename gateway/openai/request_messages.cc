#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/fields.h"
#include "gateway/openai/json.h"
#include "gateway/openai/request_common.h"

namespace holdfast::openai {
namespace {

constexpr std::size_t kNoLimit = std::string::npos;

// One part of a content array. Anything but text would have to be seen or
// heard to be answered.
ApiOr<std::string> PartText(const Json& part, const std::string& path) {
  if (!part.is_object()) {
    return FieldError(path,
                      fmt::format("must be an object, not {}", TypeName(part)));
  }
  std::optional<ApiError> error;
  Fields fields(part, path, &error);
  std::string type;
  fields.String("type", kNoLimit, &type);
  const bool is_text =
      type == "text" || type == "input_text" || type == "output_text";
  if (!error && !is_text && type != "refusal") {
    return type.empty()
               ? FieldError(fields.Path("type"), "is required")
               : UnsupportedError(
                     path, fmt::format("parts of type {} are not supported: "
                                       "this server takes text only",
                                       Dump(Json(type))));
  }
  const char* field = is_text ? "text" : "refusal";
  if (!error && fields.Find(field) == nullptr) {
    return FieldError(fields.Path(field), "is required");
  }
  std::string text;
  fields.String(field, kNoLimit, &text);
  if (error) return *std::move(error);
  return text;
}

// Text parts are put together line by line.
ApiOr<std::string> Content(const Json& message, const std::string& path,
                           bool required) {
  const auto content = message.find("content");
  if (content == message.end()) {
    if (required) return FieldError(path, "is required");
    return std::string();
  }
  if (content->is_null()) return std::string();
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return FieldError(path, fmt::format("must be a string, an array of parts "
                                        "or null, not {}",
                                        TypeName(*content)));
  }
  std::string joined;
  for (std::size_t i = 0; i < content->size(); ++i) {
    ApiOr<std::string> text =
        PartText((*content)[i], fmt::format("{}[{}]", path, i));
    if (!text.ok()) return text.error();
    if (i > 0) joined += '\n';
    joined += *text;
  }
  return joined;
}

// Templates want an object; text that is none stays as the client has it.
ApiOr<Json> Arguments(const Json& function, const std::string& path) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || arguments->is_null()) {
    return Json::object();
  }
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) {
    return FieldError(
        path, fmt::format("must be a string, not {}", TypeName(*arguments)));
  }
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  ApiOr<Json> parsed = ParseJson(text);
  if (parsed.ok() && parsed->is_object()) return std::move(*parsed);
  return *arguments;
}

ApiOr<Json> ToolCall(const Json& call, const std::string& path) {
  if (!call.is_object()) {
    return FieldError(path,
                      fmt::format("must be an object, not {}", TypeName(call)));
  }
  std::optional<ApiError> error;
  Fields fields(call, path, &error);
  std::string id;
  fields.String("id", kNoLimit, &id);
  const Json* function = fields.Find("function");
  if (!error && (function == nullptr || !function->is_object())) {
    return FieldError(fields.Path("function"), "must be an object");
  }
  if (error) return *std::move(error);
  const std::string function_path = fields.Path("function");
  Fields function_fields(*function, function_path, &error);
  std::string name;
  function_fields.String("name", kNoLimit, &name);
  if (!error && name.empty()) {
    return FieldError(function_path + ".name", "must be a non-empty string");
  }
  if (error) return *std::move(error);
  ApiOr<Json> arguments = Arguments(*function, function_path + ".arguments");
  if (!arguments.ok()) return arguments.error();

  Json result = Json::object();
  if (!id.empty()) result["id"] = id;
  result["type"] = "function";
  result["function"] = {{"name", name}, {"arguments", std::move(*arguments)}};
  return result;
}

ApiOr<Json> ToolCalls(const Json& calls, const std::string& path) {
  if (!calls.is_array()) {
    return FieldError(path,
                      fmt::format("must be an array, not {}", TypeName(calls)));
  }
  Json result = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ApiOr<Json> call = ToolCall(calls[i], fmt::format("{}[{}]", path, i));
    if (!call.ok()) return call.error();
    result.push_back(std::move(*call));
  }
  return result;
}

std::optional<ApiError> AddAssistantFields(const Json& message,
                                           const std::string& path,
                                           Json* result) {
  std::optional<ApiError> error;
  Fields fields(message, path, &error);
  std::string reasoning;
  fields.String("reasoning", kNoLimit, &reasoning);
  fields.String("reasoning_content", kNoLimit, &reasoning);  // wins
  if (error) return error;
  if (!reasoning.empty()) (*result)["reasoning_content"] = reasoning;
  const Json* calls = fields.Find("tool_calls");
  if (calls == nullptr) return std::nullopt;
  ApiOr<Json> parsed = ToolCalls(*calls, fields.Path("tool_calls"));
  if (!parsed.ok()) return parsed.error();
  if (!parsed->empty()) (*result)["tool_calls"] = std::move(*parsed);
  return std::nullopt;
}

ApiOr<Json> ParseMessage(const Json& message, const std::string& path) {
  if (!message.is_object()) {
    return FieldError(
        path, fmt::format("must be an object, not {}", TypeName(message)));
  }
  std::optional<ApiError> error;
  Fields fields(message, path, &error);
  std::string role;
  std::string name;
  std::string tool_call_id;
  fields.String("role", kNoLimit, &role);
  fields.String("name", kNoLimit, &name);
  fields.String("tool_call_id", kNoLimit, &tool_call_id);
  if (error) return *std::move(error);
  if (role == "developer") role = "system";  // the name that templates know
  if (role != "system" && role != "user" && role != "assistant" &&
      role != "tool") {
    return FieldError(fields.Path("role"),
                      "must be system, developer, user, assistant or tool");
  }
  ApiOr<std::string> content =
      Content(message, fields.Path("content"), role != "assistant");
  if (!content.ok()) return content.error();

  Json result = {{"role", role}, {"content", std::move(*content)}};
  if (!name.empty()) result["name"] = name;
  if (role == "tool" && !tool_call_id.empty()) {
    result["tool_call_id"] = tool_call_id;
  }
  if (role == "assistant") {
    error = AddAssistantFields(message, path, &result);
    if (error) return *std::move(error);
  }
  return result;
}

}  // namespace

ApiOr<Json> ParseMessages(const Json& body) {
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) {
    return FieldError("messages", "is required");
  }
  if (!messages->is_array()) {
    return FieldError("messages", fmt::format("must be an array, not {}",
                                              TypeName(*messages)));
  }
  if (messages->empty()) return FieldError("messages", "is empty");
  Json result = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    ApiOr<Json> message =
        ParseMessage((*messages)[i], fmt::format("messages[{}]", i));
    if (!message.ok()) return message.error();
    result.push_back(std::move(*message));
  }
  return result;
}

}  // namespace holdfast::openai
