// Tokens from logits.
#include <string>

#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/sampling.h"

namespace holdfast::kernels::cuda {

Status BackendImpl::PrepareChoices(int vocab) {
  if (vocab < 1) return OkStatus();  // none will be asked for
  HF_ASSIGN_OR_RETURN(choice_, DeviceMemory::Make(sizeof(ChosenToken) +
                                                      ChoiceScratchBytes(vocab),
                                                  "choices of tokens"));
  return OkStatus();
}

void BackendImpl::ChooseToken(const float* logits, int vocab,
                              const TokenChoice& choice, ChosenToken* out) {
  if (vocab < 1 || vocab > limits_.max_vocab) {
    Note(InvalidArgument("CUDA backend: a token of " + std::to_string(vocab) +
                         ", prepared for " +
                         std::to_string(limits_.max_vocab)));
    return;
  }
  static_assert(sizeof(ChosenToken) % 8 == 0);
  auto* const chosen = choice_.as<ChosenToken>();
  Note(cuda::ChooseToken(stream_.get(), logits, vocab, choice, chosen + 1,
                         chosen),
       "ChooseToken");
  Read(chosen, sizeof(ChosenToken), out);
}

}  // namespace holdfast::kernels::cuda
