// Generates small random models for tests and for machines without the demo
// model: Llama and Qwen3.5 families, as a GGUF file or a Hugging Face folder,
// with a byte-level BPE tokenizer and a chat template. Standard library alone;
// the same options give the same bytes on every machine.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TINY_MODEL_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TINY_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/model/rope.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model::testing {

// What the Qwen3.5 family has beside attention.
struct TinyHybridOptions {
  int attention_interval = 4;  // layers from one attention layer to the next
  int key_heads = 2;
  int value_heads = 4;
  int key_dim = 32;
  int value_dim = 32;
  // "qwen3_5_moe" and "qwen3_next".
  int experts = 8;
  int top_k = 2;
  int expert_ffn = 32;
  int shared_ffn = 32;
  bool fused_experts = true;  // the experts' matrices in two tensors
  // In folders: config and names as of the text part of a model with images.
  bool nested = false;
  int mtp_layers = 0;
};

struct TinyModelOptions {
  // "llama" (smollm pre-tokenizer), "qwen2" (q, k, v biases), "qwen3" (q and
  // k norms; both with qwen2's pre-tokenizer), "qwen3_5", "qwen3_5_moe" or
  // "qwen3_next" (in folders alone).
  std::string architecture = "llama";
  TinyHybridOptions hybrid = {};
  int hidden = 128;
  int layers = 3;
  int heads = 2;
  int kv_heads = 1;
  int head_dim = 64;
  int ffn = 256;
  int max_context = 32768;  // tokens
  bool tied_embeddings = false;
  RopeConfig rope = {.theta = 100000};
  // True: 1,024 tokens with merges. False: a token a byte, 263 tokens.
  bool merges = true;
  // Storage of matrices. GGUF: with Q4_0 and Q4_1 the embedding and the head
  // are Q8_0; with Q4_K they and v are Q6_K; a matrix whose rows are no whole
  // blocks of 256 is Q8_0. Folders take F32, F16, BF16 and F8_E4M3, the last
  // with embedding and head in BF16.
  kernels::WeightType type = kernels::WeightType::kF32;
  int shards = 1;  // files that a folder's weights are spread over
  // Stores, as F32, the numbers that a file of that type stands for.
  bool widened = false;
  // Rounds the numbers so that F32, BF16, F16 and Q8_0 store the same ones.
  bool coarse = false;
  std::uint64_t seed = 1;
};

// Whether the architecture is of the Qwen3.5 family.
bool IsHybrid(const TinyModelOptions& options);
// Whether only a folder can hold the model: Qwen3-Next, experts one by one,
// F8_E4M3.
bool IsFolderOnly(const TinyModelOptions& options);

// The bytes of a GGUF file. header_bytes, when given, gets the size of what
// precedes the tensors' data.
std::string TinyGguf(const TinyModelOptions& options,
                     std::size_t* header_bytes = nullptr);

// Errors name the path; what only a folder can hold is one.
kernels::Status WriteTinyGguf(const TinyModelOptions& options,
                              const std::string& path);
// Makes the folder; its parent must exist.
kernels::Status WriteTinyFolder(const TinyModelOptions& options,
                                const std::string& folder);
// Replaces the file.
kernels::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_MODEL_H_
