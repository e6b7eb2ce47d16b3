#include <algorithm>
#include <span>
#include <string>

#include "kernels/reference/sampling.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

namespace reference = kernels::reference;
using kernels::CudaBackend;

// Weights and the total against the twin's; ids and what is kept must be the
// same.
void CheckCandidates(Checker& checker, const std::string& name,
                     const std::vector<float>& logits, int rows, int vocab,
                     const CudaBackend::CandidateOptions& options) {
  const float* const device = checker.Upload(logits);
  const auto got = checker.backend().TopLogits(device, rows, vocab, options);
  if (!got.ok()) {
    checker.Expect(got.status());
    checker.Compare(name, {}, {}, 0.0);
    return;
  }
  std::vector<float> numbers;
  reference::Numbers want;
  int wrong = 0;
  for (int r = 0; r < rows; ++r) {
    const auto row = std::span(logits).subspan(std::size_t(r) * vocab, vocab);
    const auto ids = reference::LargestLogits(row, options.count);
    const auto weights = reference::SoftmaxWeights(row, options.temperature);
    std::vector<double> sorted;
    double total = 0;
    for (const int id : ids) sorted.push_back(weights[id]);
    for (const double weight : options.top_k ? sorted : weights) {
      total += weight;
    }
    const CudaBackend::Candidates& mine = (*got)[r];
    wrong +=
        !std::equal(ids.begin(), ids.end(), mine.ids.begin(), mine.ids.end());
    const int kept = options.top_p >= 1
                         ? options.count
                         : reference::KeptByTopP(sorted, total, options.top_p);
    wrong += kept != mine.kept;
    for (int i = 0; i < options.count; ++i) {
      numbers.push_back(mine.weights[i]);
      want.push_back(sorted[i]);
    }
    numbers.push_back(mine.total);
    want.push_back(total);
  }
  checker.Digest(numbers.data(), numbers.size() * sizeof(float));
  checker.Compare(name, numbers, want, kFloatLimit);
  const float wrong_rows[] = {static_cast<float>(wrong)};
  checker.Compare(name + ", ids", wrong_rows, {0.0}, 0.0);
}

}  // namespace

void CheckSampling(Checker& checker) {
  constexpr int kRows = 3;
  constexpr int kVocab = 1537;  // no multiple of a block
  kernels::Limits limits;
  limits.max_rows = 16;
  checker.Expect(checker.backend().Prepare(limits));
  Random random(9);
  // Few different numbers: ties everywhere, also of the largest.
  auto logits = random.Floats(std::size_t{kRows} * kVocab, 8.0f);
  logits[kVocab - 1] = 100.0f;  // alone, and last
  CheckCandidates(checker, "arg max", logits, kRows, kVocab, {.count = 1});
  CheckCandidates(checker, "top k", logits, kRows, kVocab,
                  {.count = 40, .temperature = 0.7f, .top_k = true});
  CheckCandidates(checker, "top p", logits, kRows, kVocab,
                  {.count = 200, .temperature = 0.5f, .top_p = 0.11f});
  CheckCandidates(checker, "top k, then p", logits, kRows, kVocab,
                  {.count = 64, .top_k = true, .top_p = 0.93f});
  CheckCandidates(checker, "top p of too few", logits, kRows, kVocab,
                  {.count = 5, .temperature = 3.0f, .top_p = 0.9f});
}

}  // namespace holdfast::gpu_check
