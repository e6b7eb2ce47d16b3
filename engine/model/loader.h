// Opens a model: a GGUF file or a Hugging Face folder.
#ifndef HOLDFAST_ENGINE_MODEL_LOADER_H_
#define HOLDFAST_ENGINE_MODEL_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "kernels/backend.h"
#include "kernels/status.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::model {

struct LoadOptions {
  kernels::StateType state_type = kernels::StateType::kBF16;
  int max_rows = 1024;  // of one Forward
  int max_context = 0;  // tokens; 0: the model's own
  // Prefill chunks start at its multiples: a multiple of kBlockTokens; 0: the
  // model's own.
  int grid_tokens = 0;
};

struct LoadedModel {
  std::unique_ptr<Model> model;
  TokenizerSpec tokenizer;
  // Every file whose content reaches the arithmetic or the tokenizer, for the
  // fingerprint.
  std::vector<std::string> files;
};

// Loads, packs and checks everything; what a request could trip over later is
// an error here that names the file and the tensor or key. The files are not
// kept open or mapped.
kernels::StatusOr<LoadedModel> LoadModel(const std::string& path,
                                         kernels::Backend& backend,
                                         const LoadOptions& options);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LOADER_H_
