// Reads a config.json: what the adapters' readers have in common.
#ifndef HOLDFAST_ENGINE_MODEL_HF_CONFIG_READER_H_
#define HOLDFAST_ENGINE_MODEL_HF_CONFIG_READER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/json.h"
#include "kernels/status.h"

namespace holdfast::model {

// Absent in effect: null, false, 0, an empty list or object.
bool IsOff(JsonValue value);

// model_type of a config.json; an error when it is no string. `file` is for
// messages, here and below.
kernels::StatusOr<std::string> HfModelType(JsonValue config,
                                           const std::string& file);

// Over one object of a config.json. `prefix` goes before the names of its keys
// in messages ("text_config."). Valid while the document lives.
class HfConfigReader {
 public:
  HfConfigReader(JsonValue json, const std::string& file, std::string prefix)
      : json_(json), file_(file), prefix_(std::move(prefix)) {}

  // The value of a key; none when it is absent or null.
  std::optional<JsonValue> Get(std::string_view key) const {
    return json_.FindSet(key);
  }
  kernels::Status Refused(std::string_view key) const;
  kernels::Status Wrong(std::string_view key, const char* wanted) const;

  // Refuses keys whose names say that they change the arithmetic, other than
  // the known ones. Others (versions, dates, ids) come and go freely.
  kernels::Status RefuseUnknown(std::span<const std::string_view> known) const;
  // hidden_act is SiLU, or absent.
  kernels::Status CheckActivation() const;
  // Class names end with one of these, or there are none.
  kernels::Status CheckClasses(std::span<const std::string_view> endings) const;
  // quantization_config, when there: weights in F8_E4M3 with scales of
  // 128 x 128 numbers, or one; which tensors are, their types say. Activations
  // stay floats: "dynamic" rounds them, row by row, for nothing but the speed
  // of other hardware.
  kernels::Status CheckQuantization() const;

  // Each is an error when the key is absent and there is no default.
  kernels::StatusOr<int> Size(std::string_view key,
                              std::optional<int> otherwise) const;
  kernels::StatusOr<bool> Flag(std::string_view key, bool otherwise) const;
  kernels::StatusOr<double> Number(std::string_view key,
                                   std::optional<double> otherwise) const;
  kernels::StatusOr<std::string_view> String(std::string_view key,
                                             std::string_view otherwise) const;
  // A reader of the object under a key; none when it is absent.
  kernels::StatusOr<std::optional<HfConfigReader>> Object(
      std::string_view key) const;

  JsonValue json() const { return json_; }
  const std::string& file() const { return file_; }

 private:
  JsonValue json_;
  const std::string& file_;
  std::string prefix_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_HF_CONFIG_READER_H_
