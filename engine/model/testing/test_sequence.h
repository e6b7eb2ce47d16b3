// A sequence with blocks of its own, for tests that call Model::Forward.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TEST_SEQUENCE_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TEST_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"

namespace holdfast::model::testing {

class TestSequence {
 public:
  // Room for `tokens` positions, every byte of it `fill` (0xff makes each
  // number of a row a NaN). `model` must outlive this.
  TestSequence(const Model& model, int tokens, std::byte fill);

  // The next rows; the spans must live until Forward has returned. Advances
  // the position.
  SequenceRows Next(std::span<const std::int32_t> ids);

  int position() const { return position_; }
  // Copies of the rows below `tokens` in whole granules (the last granule only
  // when it is full), view by view and layer by layer.
  std::string RowBytes(int tokens) const;
  // One section after the other.
  std::string SectionBytes() const;
  // Null when the model has no section of that name.
  const std::byte* SectionData(std::string_view name) const;

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  const Model& model_;
  int position_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte*> blocks_;
  std::vector<std::byte> sections_;
};

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TEST_SEQUENCE_H_
