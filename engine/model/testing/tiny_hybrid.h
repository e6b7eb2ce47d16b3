// The generated models of the Qwen3.5 family: what differs from Llama's.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TINY_HYBRID_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TINY_HYBRID_H_

#include <string>
#include <vector>

#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_tokenizer.h"
#include "engine/model/testing/tiny_weights.h"

namespace holdfast::model::testing {

std::vector<TinyTensor> MakeHybridWeights(const TinyModelOptions& options,
                                          int vocab_size);
std::vector<TinyTensor> HybridToGgufForm(const TinyModelOptions& options,
                                         TinyTensor tensor);

std::string HybridConfigJson(const TinyModelOptions& options,
                             const TinyTokenizer& tokenizer);
// The keys of the architecture's namespace.
void AddHybridConfig(const TinyModelOptions& options, GgufWriter* writer);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_HYBRID_H_
