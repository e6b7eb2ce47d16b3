// Finds stop strings in the output's bytes, across token boundaries.
#ifndef HOLDFAST_ENGINE_OUTPUT_STOP_MATCHER_H_
#define HOLDFAST_ENGINE_OUTPUT_STOP_MATCHER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engine {

// Of one request. Keeps no more bytes than the longest stop string has.
class StopMatcher {
 public:
  // None of them is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes the next token's bytes. The index of the stop string that now stands
  // in the output: the one that begins first; of those, the first listed.
  std::optional<int> Append(std::string_view bytes);

 private:
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string tail_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_OUTPUT_STOP_MATCHER_H_
