// Reads one safetensors file over a read-only mapping. Every length and offset
// is checked before it is used; errors name the file and the tensor.
#ifndef HOLDFAST_ENGINE_MODEL_SAFETENSORS_H_
#define HOLDFAST_ENGINE_MODEL_SAFETENSORS_H_

#include <string>
#include <utility>
#include <vector>

#include "engine/model/mapped_file.h"
#include "engine/model/tensors.h"
#include "kernels/status.h"

namespace holdfast::model {

// Immutable; owns the mapping that the tensors point into.
class SafetensorsFile {
 public:
  // The tensors' bytes must fill the data section without a gap, as the format
  // demands. Types other than F32, F16, BF16 and
  // F8_E4M3 are an error.
  static kernels::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<FileTensor>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::vector<FileTensor> tensors_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_SAFETENSORS_H_
