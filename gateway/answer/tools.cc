#include "gateway/answer/tools.h"

#include "gateway/answer/json_scanner.h"

namespace holdfast::answer {
namespace {

// Of references and of what they lead to: a schema may refer to itself.
constexpr int kMaxDepth = 16;

Types NamedType(const Json& name) {
  if (name == "string") return kString;
  if (name == "number" || name == "integer") return kNumber;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  if (name == "object") return kObject;
  if (name == "array") return kArray;
  return kAnyType;  // not JSON Schema's
}

Types TypeOf(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_object() ? kObject : kArray;
}

const Json* Member(const Json& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

// "#/$defs/Name" within `root`; null where it leads nowhere.
const Json* Resolve(const Json& reference, const Json& root) {
  if (!reference.is_string()) return nullptr;
  const auto& path = reference.get_ref<const std::string&>();
  if (!path.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(path.substr(1));
    return root.contains(pointer) ? &root[pointer] : nullptr;
  } catch (const Json::exception&) {  // not a pointer
    return nullptr;
  }
}

Types Allowed(const Json& schema, const Json& root, int depth);

// The union of what an array's entries give.
template <typename OfEntry>
Types Union(const Json& entries, const OfEntry& of_entry) {
  Types types = 0;
  for (const Json& entry : entries) types |= of_entry(entry);
  return types == 0 ? kAnyType : types;
}

Types Allowed(const Json& schema, const Json& root, int depth) {
  if (!schema.is_object() || depth > kMaxDepth) return kAnyType;
  const auto deeper = [&](const Json& other) {
    return Allowed(other, root, depth + 1);
  };
  Types types = kAnyType;
  if (const Json* type = Member(schema, "type")) {
    types &= type->is_array() ? Union(*type, NamedType) : NamedType(*type);
  }
  const Json* values = Member(schema, "enum");
  if (values != nullptr && values->is_array()) types &= Union(*values, TypeOf);
  if (const Json* value = Member(schema, "const")) types &= TypeOf(*value);
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* choices = Member(schema, key);
    if (choices != nullptr && choices->is_array()) {
      types &= Union(*choices, deeper);
    }
  }
  const Json* all = Member(schema, "allOf");
  if (all != nullptr && all->is_array()) {
    for (const Json& one : *all) types &= deeper(one);
  }
  if (const Json* reference = Member(schema, "$ref")) {
    const Json* const target = Resolve(*reference, root);
    if (target != nullptr) types &= deeper(*target);
  }
  const Json* nullable = Member(schema, "nullable");
  if (nullable != nullptr && *nullable == true) types |= kNull;
  return types == 0 ? kAnyType : types;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The JSON of a text that stands for a value of another type than string.
std::string_view Literal(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return text;
}

// By its first byte; a quoted string is text like any other.
Types TypeOfText(std::string_view text) {
  switch (text.front()) {
    case '{':
      return kObject;
    case '[':
      return kArray;
    case '"':
      return 0;
    case 't':
    case 'f':
      return kBoolean;
    case 'n':
      return kNull;
    default:
      return kNumber;
  }
}

}  // namespace

Types Tools::TypesOf(std::string_view function,
                     std::string_view parameter) const {
  for (const Json& tool : tools_) {
    const Json* const definition = Member(tool, "function");
    if (definition == nullptr) continue;
    const Json* const name = Member(*definition, "name");
    if (name == nullptr || !name->is_string() ||
        name->get_ref<const std::string&>() != function) {
      continue;
    }
    const Json* const schema = Member(*definition, "parameters");
    if (schema == nullptr) return kString;
    const Json* const properties = Member(*schema, "properties");
    const Json* found = properties == nullptr
                            ? nullptr
                            : Member(*properties, std::string(parameter));
    if (found == nullptr) found = Member(*schema, "additionalProperties");
    return found != nullptr && found->is_object() ? Allowed(*found, *schema, 0)
                                                  : kString;
  }
  return kString;
}

std::string ToJson(std::string_view text, Types types) {
  const std::string_view literal = Literal(Trim(text));
  if (!literal.empty() && (TypeOfText(literal) & types) != 0 &&
      IsJsonValue(literal)) {
    return std::string(literal);
  }
  return "\"" + EscapeJson(text) + "\"";
}

std::string EscapeJson(std::string_view text) {
  const std::string quoted =
      Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace holdfast::answer
