#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/reference/sampling.h"
#include "kernels/sampling/token_chooser.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

namespace reference = kernels::reference;
using kernels::ChosenToken;
using kernels::TokenChoice;

constexpr int kDraws = 12;

ChosenToken Choose(Checker& checker, const float* device, int vocab,
                   const TokenChoice& choice) {
  ChosenToken chosen;
  checker.backend().ChooseToken(device, vocab, choice, &chosen);
  checker.Expect(checker.backend().Synchronize());
  checker.Digest(&chosen, sizeof(chosen));
  return chosen;
}

// Draws all over [0, 1): the very tokens that the host chooses, which lie where
// plain doubles say. Undecided may be what the candidates do not reach.
void CheckChoice(Checker& checker, const std::string& name,
                 std::span<const float> logits, TokenChoice choice,
                 bool far = false) {
  const int vocab = static_cast<int>(logits.size());
  const float* const device = checker.Upload(logits);
  kernels::TokenChooser host(vocab);
  int wrong = 0;
  int undecided = 0;
  double outside = 0.0;
  for (int draw = 0; draw < kDraws; ++draw) {
    choice.uniform = (draw + 0.37) / kDraws;
    const ChosenToken chosen = Choose(checker, device, vocab, choice);
    const std::int32_t want = host.Choose(logits, choice);
    outside = std::max(outside, reference::OutsideShare(logits, choice, want));
    if (chosen.outcome == ChosenToken::Outcome::kUndecided) {
      ++undecided;
    } else {
      wrong +=
          chosen.outcome != ChosenToken::Outcome::kChosen || chosen.id != want;
    }
  }
  wrong += far ? undecided == 0 : undecided;
  const float wrong_draws[] = {static_cast<float>(wrong)};
  checker.Compare(name + ": tokens of the host", wrong_draws, {0.0}, 0.0);
  const float far_off[] = {static_cast<float>(outside)};
  checker.Compare(name + ": share of the draw", far_off, {0.0}, 1e-6);
}

void CheckNotFinite(Checker& checker, std::vector<float> logits, float bad) {
  logits[logits.size() - 3] = bad;
  const float* const device = checker.Upload(logits);
  int missed = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    const ChosenToken chosen =
        Choose(checker, device, static_cast<int>(logits.size()),
               {.temperature = temperature});
    missed += chosen.outcome != ChosenToken::Outcome::kNotFinite;
  }
  const float missed_rows[] = {static_cast<float>(missed)};
  checker.Compare("a logit that is not finite", missed_rows, {0.0}, 0.0);
}

}  // namespace

void CheckSampling(Checker& checker) {
  constexpr int kVocab = 5003;  // three slices, the last not whole
  kernels::Limits limits;
  limits.max_rows = 16;
  limits.max_vocab = kVocab;
  checker.Expect(checker.backend().Prepare(limits));
  Random random(9);
  // Few different numbers: ties everywhere, of the largest too.
  const auto flat = random.Floats(kVocab, 8.0f);
  auto steep = random.Floats(kVocab, 20.0f);
  steep[1] = -0.0f;
  steep[0] = 0.0f;
  auto last = flat;
  last[kVocab - 1] = 100.0f;
  CheckChoice(checker, "arg max", flat, {});
  CheckChoice(checker, "arg max, last", last, {});
  CheckChoice(checker, "softmax", steep, {.temperature = 0.4f});
  CheckChoice(checker, "softmax, flat", flat, {.temperature = 3.0f}, true);
  CheckChoice(checker, "top k", flat, {.temperature = 0.7f, .top_k = 40});
  CheckChoice(checker, "top p", steep, {.temperature = 0.5f, .top_p = 0.4f});
  CheckChoice(checker, "min p", flat, {.temperature = 0.3f, .min_p = 0.2f});
  CheckChoice(checker, "top k, then p", steep,
              {.temperature = 1.0f, .top_k = 64, .top_p = 0.93f});
  CheckChoice(checker, "few ids", std::span(flat).first(7),
              {.temperature = 2.0f, .top_p = 0.9f});
  CheckNotFinite(checker, flat, std::numeric_limits<float>::infinity());
  CheckNotFinite(checker, flat, -std::numeric_limits<float>::infinity());
  CheckNotFinite(checker, flat, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace holdfast::gpu_check
