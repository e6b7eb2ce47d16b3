// Builds GGUF files (version 3) in memory.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_GGUF_WRITER_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_GGUF_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace holdfast::model::testing {

class GgufWriter {
 public:
  void AddU32(std::string_view key, std::uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddInts(std::string_view key, std::span<const std::int32_t> values);
  // Shape with the slowest dimension first; `bytes` as the type stores them.
  void AddTensor(std::string_view name, kernels::WeightType type,
                 std::span<const std::int64_t> shape, std::string bytes);

  // The file. header_bytes, when given, gets the size of what precedes the
  // tensors' data.
  std::string Finish(std::size_t* header_bytes = nullptr) const;

 private:
  struct Tensor {
    std::string head;  // name, shape, type: all but the offset
    std::string bytes;
  };
  void AddKey(std::string_view key, std::uint32_t type);

  std::uint64_t values_ = 0;
  std::string metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_GGUF_WRITER_H_
