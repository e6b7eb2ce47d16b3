// Reads a model's configuration from GGUF metadata: what the adapters' readers
// have in common.
#ifndef HOLDFAST_ENGINE_MODEL_GGUF_CONFIG_READER_H_
#define HOLDFAST_ENGINE_MODEL_GGUF_CONFIG_READER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/gguf.h"
#include "kernels/status.h"

namespace holdfast::model {

// general.architecture of a file that holds one whole model; an error when it
// holds something else or a part.
kernels::StatusOr<std::string> GgufArchitecture(const GgufFile& file);

// Over the keys below "<architecture>.". `file` must outlive this.
class GgufConfigReader {
 public:
  GgufConfigReader(const GgufFile& file, const std::string& architecture)
      : file_(file), prefix_(architecture + ".") {}

  kernels::Status Refused(const std::string& key,
                          const std::string& value) const;
  // All of the namespace describes the model: a key that is not known is
  // refused.
  kernels::Status RefuseUnknown(std::span<const std::string_view> known) const;
  // Refuses a key that is neither absent nor 0.
  kernels::Status RefuseSet(const std::string& key) const;

  kernels::StatusOr<std::optional<int>> Size(const std::string& key) const;
  kernels::StatusOr<int> NeededSize(const std::string& key) const;
  kernels::StatusOr<double> NeededNumber(const std::string& key) const;
  // vocab_size, or else the number of the tokenizer's tokens; 0 without both.
  kernels::StatusOr<int> VocabSize() const;

  bool HasTensor(std::string_view name) const;
  const GgufFile& file() const { return file_; }
  // The key with the architecture before it.
  std::string Key(const std::string& key) const { return prefix_ + key; }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_GGUF_CONFIG_READER_H_
