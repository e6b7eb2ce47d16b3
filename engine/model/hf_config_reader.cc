#include "engine/model/hf_config_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::StatusOr;
using kernels::Unimplemented;

// A key that is not known and has one of these in its name is taken to change
// the arithmetic.
constexpr std::string_view kSuspects[] = {
    "act",      "attention", "attn",   "auto_map", "bias",  "cap",
    "clip",     "conv",      "embed",  "expert",   "gate",  "head",
    "interval", "layer",     "linear", "logit",    "mlp",   "moe",
    "mrope",    "mult",      "norm",   "position", "quant", "residual",
    "rope",     "rotary",    "router", "scal",     "sink",  "sparse",
    "ssm",      "topk",      "window",
};

bool IsBlockOf128(JsonValue sizes) {
  for (JsonValue size : sizes.elements()) {
    if (size.integer() != 128) return false;
  }
  return sizes.is_array() && sizes.size() == 2;
}

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool IsOff(JsonValue value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !value.boolean();
    case JsonValue::Kind::kNumber:
      return value.number() == 0;
    case JsonValue::Kind::kString:
      return false;
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      return value.size() == 0;
  }
  return false;
}

StatusOr<std::string> HfModelType(JsonValue config, const std::string& file) {
  if (!config.is_object()) {
    return InvalidArgument(Message(file, ": not an object"));
  }
  const auto type = config.FindSet("model_type");
  if (!type || !type->is_string()) {
    return InvalidArgument(Message(file, ": model_type is not a string"));
  }
  return std::string(type->string());
}

Status HfConfigReader::Refused(std::string_view key) const {
  return Unimplemented(Message(file_, ": ", prefix_, key,
                               " with this value is not implemented"));
}

Status HfConfigReader::Wrong(std::string_view key, const char* wanted) const {
  return InvalidArgument(
      Message(file_, ": ", prefix_, key, " is not ", wanted));
}

Status HfConfigReader::RefuseUnknown(
    std::span<const std::string_view> known) const {
  for (auto [key, value] : json_.members()) {
    if (IsOff(value) || Contains(known, key)) continue;
    for (std::string_view suspect : kSuspects) {
      if (key.find(suspect) != std::string_view::npos) return Refused(key);
    }
  }
  return kernels::OkStatus();
}

Status HfConfigReader::CheckActivation() const {
  const auto act = Get("hidden_act");
  if (act && (!act->is_string() ||
              (act->string() != "silu" && act->string() != "swish"))) {
    return Refused("hidden_act");
  }
  return kernels::OkStatus();
}

Status HfConfigReader::CheckClasses(
    std::span<const std::string_view> endings) const {
  const auto classes = Get("architectures");
  if (!classes) return kernels::OkStatus();
  for (JsonValue name : classes->elements()) {
    if (!name.is_string() ||
        std::none_of(endings.begin(), endings.end(), [&](auto ending) {
          return name.string().ends_with(ending);
        })) {
      return Refused("architectures");
    }
  }
  return kernels::OkStatus();
}

Status HfConfigReader::CheckQuantization() const {
  const auto config = Get("quantization_config");
  if (!config || IsOff(*config)) return kernels::OkStatus();
  const auto refused = [&](std::string_view key) {
    return Refused(Message("quantization_config.", key));
  };
  const auto method = config->FindSet("quant_method");
  if (!method || !method->is_string() || method->string() != "fp8") {
    return refused("quant_method");
  }
  for (auto [key, value] : config->members()) {
    if (IsOff(value) || key == "quant_method" || key == "scale_fmt" ||
        key == "modules_to_not_convert" || key == "ignored_layers") {
      continue;
    }
    const bool known =
        (key == "fmt" && value.is_string() && value.string() == "e4m3") ||
        (key == "activation_scheme" && value.is_string() &&
         value.string() == "dynamic") ||
        (key == "weight_block_size" && IsBlockOf128(value));
    if (!known) return refused(key);
  }
  return kernels::OkStatus();
}

StatusOr<int> HfConfigReader::Size(std::string_view key,
                                   std::optional<int> otherwise) const {
  const auto value = Get(key);
  if (!value && otherwise) return *otherwise;
  if (!value) {
    return InvalidArgument(Message(file_, ": ", prefix_, key, " is missing"));
  }
  const auto integer = value->integer();
  if (!integer || *integer < 1 || *integer > std::numeric_limits<int>::max()) {
    return Wrong(key, "a positive integer");
  }
  return static_cast<int>(*integer);
}

StatusOr<bool> HfConfigReader::Flag(std::string_view key,
                                    bool otherwise) const {
  const auto value = Get(key);
  if (!value) return otherwise;
  if (!value->is_bool()) return Wrong(key, "a boolean");
  return value->boolean();
}

StatusOr<double> HfConfigReader::Number(std::string_view key,
                                        std::optional<double> otherwise) const {
  const auto value = Get(key);
  if (!value && otherwise) return *otherwise;
  if (!value) {
    return InvalidArgument(Message(file_, ": ", prefix_, key, " is missing"));
  }
  if (!value->is_number()) return Wrong(key, "a number");
  return value->number();
}

StatusOr<std::string_view> HfConfigReader::String(
    std::string_view key, std::string_view otherwise) const {
  const auto value = Get(key);
  if (!value) return otherwise;
  if (!value->is_string()) return Wrong(key, "a string");
  return value->string();
}

StatusOr<std::optional<HfConfigReader>> HfConfigReader::Object(
    std::string_view key) const {
  const auto value = Get(key);
  if (!value) return std::optional<HfConfigReader>();
  if (!value->is_object()) return Wrong(key, "an object");
  return std::optional<HfConfigReader>(
      HfConfigReader(*value, file_, Message(prefix_, key, ".")));
}

}  // namespace holdfast::model
