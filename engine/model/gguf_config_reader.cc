#include "engine/model/gguf_config_reader.h"

#include <algorithm>
#include <limits>

#include "engine/model/message.h"

namespace holdfast::model {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::StatusOr;
using kernels::Unimplemented;

StatusOr<std::string> GgufArchitecture(const GgufFile& file) {
  HF_ASSIGN_OR_RETURN(const auto architecture,
                      file.String("general.architecture"));
  if (!architecture) {
    return InvalidArgument(
        Message(file.path(), ": metadata key general.architecture is missing"));
  }
  HF_ASSIGN_OR_RETURN(const auto type, file.String("general.type"));
  if (type.value_or("model") != "model") {
    return Unimplemented(
        Message(file.path(), ": general.type is '", *type, "', not 'model'"));
  }
  HF_ASSIGN_OR_RETURN(const auto parts, file.Integer("split.count"));
  if (parts.value_or(1) > 1) {
    return Unimplemented(Message(file.path(), ": split.count is ", *parts,
                                 "; join the parts into one file"));
  }
  return std::string(*architecture);
}

Status GgufConfigReader::Refused(const std::string& key,
                                 const std::string& value) const {
  return Unimplemented(Message(file_.path(), ": metadata key ", prefix_, key,
                               value.empty() ? "" : " = ", value,
                               " is not implemented"));
}

Status GgufConfigReader::RefuseUnknown(
    std::span<const std::string_view> known) const {
  for (const std::string& key : file_.keys()) {
    if (!key.starts_with(prefix_)) continue;
    const std::string_view name = std::string_view(key).substr(prefix_.size());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Refused(std::string(name), "");
    }
  }
  return kernels::OkStatus();
}

Status GgufConfigReader::RefuseSet(const std::string& key) const {
  HF_ASSIGN_OR_RETURN(const auto value, file_.Integer(prefix_ + key));
  if (value.value_or(0) != 0) return Refused(key, std::to_string(*value));
  return kernels::OkStatus();
}

StatusOr<std::optional<int>> GgufConfigReader::Size(
    const std::string& key) const {
  HF_ASSIGN_OR_RETURN(const auto value, file_.Integer(prefix_ + key));
  if (!value) return std::optional<int>();
  if (*value < 0 || *value > std::numeric_limits<int>::max()) {
    return InvalidArgument(
        Message(file_.path(), ": metadata key ", prefix_, key, " is ", *value));
  }
  return std::optional<int>(static_cast<int>(*value));
}

StatusOr<int> GgufConfigReader::NeededSize(const std::string& key) const {
  HF_ASSIGN_OR_RETURN(const auto value, Size(key));
  if (!value) {
    return InvalidArgument(
        Message(file_.path(), ": metadata key ", prefix_, key, " is missing"));
  }
  return *value;
}

StatusOr<double> GgufConfigReader::NeededNumber(const std::string& key) const {
  HF_ASSIGN_OR_RETURN(const auto value, file_.Number(prefix_ + key));
  if (!value) {
    return InvalidArgument(
        Message(file_.path(), ": metadata key ", prefix_, key, " is missing"));
  }
  return *value;
}

StatusOr<int> GgufConfigReader::VocabSize() const {
  HF_ASSIGN_OR_RETURN(const auto vocab, Size("vocab_size"));
  if (vocab) return *vocab;
  HF_ASSIGN_OR_RETURN(const auto* tokens,
                      file_.Strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr) return 0;
  return static_cast<int>(
      std::min<std::size_t>(tokens->size(), std::numeric_limits<int>::max()));
}

bool GgufConfigReader::HasTensor(std::string_view name) const {
  return std::any_of(file_.tensors().begin(), file_.tensors().end(),
                     [&](const FileTensor& t) { return t.name == name; });
}

}  // namespace holdfast::model
