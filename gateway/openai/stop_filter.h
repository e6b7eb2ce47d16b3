// Stop strings on the text that is sent. The engine stops after the token that
// completes a stop string; the client must see nothing from the start of the
// match on, while streaming too.
#ifndef HOLDFAST_GATEWAY_OPENAI_STOP_FILTER_H_
#define HOLDFAST_GATEWAY_OPENAI_STOP_FILTER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::openai {

// Text goes in as it is decoded, in pieces of whole UTF-8 characters; what
// comes out does not depend on how it was cut. The match that ends first
// counts; of several that end together, the longest. Not thread-safe.
class StopFilter {
 public:
  // `stops` are non-empty. None: everything passes at once.
  explicit StopFilter(std::vector<std::string> stops);

  // The text that may be sent now. A suffix that could begin a stop string is
  // held back. Nothing after a match.
  std::string Push(std::string_view text);
  // The end of the answer: what was still held back. Empty after a match.
  std::string Finish();

  bool stopped() const { return stopped_; }

 private:
  std::size_t HeldBack() const;

  const std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_STOP_FILTER_H_
