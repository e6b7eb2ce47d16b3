// A drafter that knows the answers, for tests.
#ifndef HOLDFAST_ENGINE_TESTING_SCRIPTED_DRAFTER_H_
#define HOLDFAST_ENGINE_TESTING_SCRIPTED_DRAFTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/drafting/drafter.h"

namespace holdfast::engine::testing {

class ScriptedDrafter final : public Drafter {
 public:
  // Each guess at a place of the answer that is a multiple of `wrong` is
  // another id than the answer's; 0: none is.
  explicit ScriptedDrafter(std::size_t wrong = 0) : wrong_(wrong) {}

  // Instead of what it knew of this prompt.
  void Know(const std::vector<std::int32_t>& prompt,
            std::vector<std::int32_t> answer) {
    std::erase_if(scripts_, [&](const Script& script) {
      return script.prompt == prompt;
    });
    scripts_.push_back({prompt, std::move(answer)});
  }
  std::vector<std::int32_t> Draft(std::span<const std::int32_t> ids,
                                  int most) override {
    std::vector<std::int32_t> drafts;
    for (const Script& script : scripts_) {
      const std::size_t prompt = script.prompt.size();
      if (ids.size() < prompt ||
          !std::ranges::equal(ids.first(prompt), script.prompt)) {
        continue;
      }
      for (std::size_t at = ids.size() - prompt;
           at < script.answer.size() && most > 0; ++at, --most) {
        const bool wrong = wrong_ > 0 && at % wrong_ == 0;
        const std::int32_t right = script.answer[at];
        const std::int32_t other = right == 0 ? 1 : right - 1;
        drafts.push_back(wrong ? other : right);
      }
      break;
    }
    drafted += drafts.size();
    return drafts;
  }

  std::size_t drafted = 0;  // tokens

 private:
  struct Script {
    std::vector<std::int32_t> prompt;
    std::vector<std::int32_t> answer;
  };
  const std::size_t wrong_;
  std::vector<Script> scripts_;
};

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_SCRIPTED_DRAFTER_H_
