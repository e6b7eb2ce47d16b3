#include "engine/model/model.h"

namespace holdfast::model {

SectionOffsets ComputeSectionOffsets(const CacheLayout& layout) {
  constexpr std::size_t kAlignment = 64;
  SectionOffsets result;
  for (const Section& section : layout.sections) {
    result.offsets.push_back(result.bytes);
    result.bytes += (section.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return result;
}

}  // namespace holdfast::model
