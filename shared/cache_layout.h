// What one token and one sequence add to the cache, by name and size: all that
// pools and tiers know of a model. C++ standard library only: engine/model/
// fills it in on machines that have nothing else.
#ifndef HOLDFAST_SHARED_CACHE_LAYOUT_H_
#define HOLDFAST_SHARED_CACHE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

// Token rows of every view in one block; the unit of the pool.
inline constexpr int kBlockTokens = 256;
// A backend may order bytes inside a block within runs of this many tokens, so
// rows are copied and hashed in whole granules.
inline constexpr int kGranuleTokens = 16;
// Blocks start on this boundary, so that direct I/O can read and write them.
// A constant, never the machine's page size: it is part of file formats.
inline constexpr std::size_t kBlockAlignment = 4096;

// A position-indexed buffer. Inside a block it is `parts` (layers) runs of
// kBlockTokens x bytes_per_token / parts bytes.
struct View {
  std::string name;                   // "K", "V", ...
  std::uint64_t bytes_per_token = 0;  // over all parts
  std::uint32_t parts = 1;
};

// The section that holds the last hidden row; unlike the others it is not read
// by the next row.
inline constexpr char kHLast[] = "h_last";

// A part of the recurrent state: fixed bytes whatever the length.
struct Section {
  std::string name;  // "h_last", "gdn.S", ...
  std::uint64_t bytes = 0;
};

struct CacheLayout {
  std::vector<View> views;
  std::vector<Section> sections;
  std::uint32_t grid_tokens = 1024;  // prefill chunks start at its multiples

  // Is there state that has absorbed every token and cannot be rewound? A
  // sequence of such a model is resumed only where a copy of it was taken.
  bool Recurrent() const {
    for (const Section& section : sections) {
      if (section.name != kHLast) return true;
    }
    return false;
  }
  // Bytes of one token row over all views.
  std::uint64_t RowBytes() const {
    std::uint64_t sum = 0;
    for (const View& view : views) sum += view.bytes_per_token;
    return sum;
  }
  // Bytes from one block to the next in the pool.
  std::uint64_t BlockBytes() const {
    const std::uint64_t bytes = RowBytes() * kBlockTokens;
    return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  }
  std::uint64_t SectionBytes() const {
    std::uint64_t sum = 0;
    for (const Section& section : sections) sum += section.bytes;
    return sum;
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_CACHE_LAYOUT_H_
