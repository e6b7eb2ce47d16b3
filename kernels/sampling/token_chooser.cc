#include "kernels/sampling/token_chooser.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "kernels/sampling/ranked_draw.h"

namespace holdfast::kernels {
namespace {

double TotalWeight(std::span<const float> logits, float largest,
                   float temperature) {
  double total = 0;
  while (!logits.empty()) {
    const auto slice =
        logits.first(std::min<std::size_t>(logits.size(), kSliceIds));
    double lanes[kSliceLanes] = {};
    for (std::size_t i = 0; i < slice.size(); ++i) {
      lanes[i % kSliceLanes] += TokenWeight(slice[i], largest, temperature);
    }
    for (int half = kSliceLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    total += lanes[0];
    logits = logits.subspan(slice.size());
  }
  return total;
}

}  // namespace

// Takes candidates off a heap, best first: few are looked at.
class TokenChooser::Ranked {
 public:
  Ranked(TokenChooser& space, std::span<const float> logits, float largest,
         float temperature)
      : space_(space),
        logits_(logits),
        largest_(largest),
        temperature_(temperature) {
    space_.ranked_.clear();
    space_.heap_.resize(logits.size());
    std::iota(space_.heap_.begin(), space_.heap_.end(), 0);
    std::ranges::make_heap(space_.heap_, Worse{logits_});
  }

  bool Has(int rank) const { return rank < static_cast<int>(logits_.size()); }
  std::int32_t Id(int rank) {
    while (static_cast<int>(space_.ranked_.size()) <= rank) {
      std::ranges::pop_heap(space_.heap_, Worse{logits_});
      space_.ranked_.push_back(space_.heap_.back());
      space_.heap_.pop_back();
    }
    return space_.ranked_[rank];
  }
  double Weight(int rank) {
    return TokenWeight(logits_[Id(rank)], largest_, temperature_);
  }

 private:
  // Orders the heap: the best on top.
  struct Worse {
    std::span<const float> logits;
    bool operator()(std::int32_t a, std::int32_t b) const {
      return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
    }
  };

  TokenChooser& space_;
  const std::span<const float> logits_;
  const float largest_;
  const float temperature_;
};

std::int32_t ArgMax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) -
                                   logits.begin());
}

TokenChooser::TokenChooser(int vocab_size) {
  heap_.reserve(vocab_size);
  ranked_.reserve(vocab_size);
}

std::int32_t TokenChooser::Choose(std::span<const float> logits,
                                  const TokenChoice& choice) {
  const std::int32_t best = ArgMax(logits);
  if (choice.temperature == 0) return best;
  const int vocab = static_cast<int>(logits.size());
  const float largest = logits[best];
  const double total = CutsToTopK(choice, vocab)
                           ? 0
                           : TotalWeight(logits, largest, choice.temperature);
  Ranked ranked(*this, logits, largest, choice.temperature);
  return ranked.Id(DrawRank(ranked, vocab, total, choice));
}

}  // namespace holdfast::kernels
