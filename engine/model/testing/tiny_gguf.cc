// The generated models as GGUF files.
#include <string>
#include <utility>
#include <vector>

#include "engine/model/message.h"
#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/quantize.h"
#include "engine/model/testing/tiny_hybrid.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_tokenizer.h"
#include "engine/model/testing/tiny_weights.h"

namespace holdfast::model::testing {
namespace {

using kernels::WeightType;

// general.architecture, and how tokenizer.ggml.pre calls its pre-tokenizer.
std::string Architecture(const TinyModelOptions& options) {
  if (options.architecture == "qwen3_5_moe") return "qwen35moe";
  return IsHybrid(options) ? "qwen35" : options.architecture;
}
const char* PreTokenizer(const TinyModelOptions& options) {
  if (IsHybrid(options)) return "qwen35";
  return options.architecture == "llama" ? "smollm" : "qwen2";
}

void AddGeneral(const TinyModelOptions& options, GgufWriter* writer) {
  writer->AddString("general.architecture", Architecture(options));
  writer->AddString("general.type", "model");
  writer->AddString("general.name", options.merges
                                        ? "tiny-" + Architecture(options)
                                        : std::string("tiny-bytes"));
}

void AddLlamaConfig(const TinyModelOptions& options, GgufWriter* writer) {
  const std::string prefix = options.architecture + ".";
  const auto size = [&](const char* key, int value) {
    writer->AddU32(prefix + key, static_cast<std::uint32_t>(value));
  };
  size("block_count", options.layers);
  size("context_length", options.max_context);
  size("embedding_length", options.hidden);
  size("feed_forward_length", options.ffn);
  size("attention.head_count", options.heads);
  size("attention.head_count_kv", options.kv_heads);
  size("attention.key_length", options.head_dim);
  size("attention.value_length", options.head_dim);
  size("rope.dimension_count", options.head_dim);
  writer->AddF32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  writer->AddF32(prefix + "rope.freq_base",
                 static_cast<float>(options.rope.theta));
  if (options.rope.scaling == RopeConfig::Scaling::kLinear) {
    writer->AddString(prefix + "rope.scaling.type", "linear");
    writer->AddF32(prefix + "rope.scaling.factor",
                   static_cast<float>(options.rope.factor));
  }
}

void AddTokenizer(const TinyModelOptions& options,
                  const TinyTokenizer& tokenizer, GgufWriter* writer) {
  constexpr std::int32_t kNormal = 1, kControl = 3, kUser = 4;
  writer->AddString("tokenizer.ggml.model", "gpt2");
  writer->AddString("tokenizer.ggml.pre", PreTokenizer(options));
  writer->AddStrings("tokenizer.ggml.tokens", tokenizer.tokens);
  std::vector<std::int32_t> types(tokenizer.tokens.size(), kNormal);
  for (const auto& added : tokenizer.added) {
    types[added.id] = added.special ? kControl : kUser;
  }
  writer->AddInts("tokenizer.ggml.token_type", types);
  std::vector<std::string> merges;
  for (const auto& [left, right] : tokenizer.merges) {
    merges.push_back(left + " " + right);
  }
  writer->AddStrings("tokenizer.ggml.merges", merges);
  writer->AddU32("tokenizer.ggml.bos_token_id", tokenizer.end_of_text);
  writer->AddU32("tokenizer.ggml.eos_token_id", tokenizer.turn_end);
  writer->AddU32("tokenizer.ggml.eot_token_id", tokenizer.end_of_text);
  writer->AddU32("tokenizer.ggml.padding_token_id", tokenizer.end_of_text);
  writer->AddBool("tokenizer.ggml.add_bos_token", false);
  writer->AddString("tokenizer.chat_template", TinyChatTemplate(options));
}

// GGUF has no key for llama3's scaling: converters write its effect.
void AddRopeDivisors(const TinyModelOptions& options, GgufWriter* writer) {
  if (options.rope.scaling != RopeConfig::Scaling::kLlama3) return;
  RopeConfig plain = options.rope;
  plain.scaling = RopeConfig::Scaling::kNone;
  std::vector<float> divisors = InverseFrequencies(plain, options.head_dim, {});
  const std::vector<float> scaled =
      InverseFrequencies(options.rope, options.head_dim, {});
  for (std::size_t i = 0; i < scaled.size(); ++i) divisors[i] /= scaled[i];
  const std::int64_t shape[] = {static_cast<std::int64_t>(divisors.size())};
  writer->AddTensor("rope_freqs.weight", WeightType::kF32, shape,
                    Store(WeightType::kF32, divisors));
}

WeightType TypeOf(const TinyModelOptions& options, const TinyTensor& tensor) {
  if (tensor.shape.size() == 1 || tensor.gguf_name.ends_with("conv1d.weight")) {
    return WeightType::kF32;
  }
  const bool end = tensor.gguf_name == "token_embd.weight" ||
                   tensor.gguf_name == "output.weight";
  const bool four_bits =
      options.type == WeightType::kQ4_0 || options.type == WeightType::kQ4_1;
  if (end && four_bits) return WeightType::kQ8_0;
  if (kernels::WeightRowBytes(options.type, tensor.shape.back()) == 0) {
    return WeightType::kQ8_0;
  }
  const bool finer = end || tensor.gguf_name.ends_with("attn_v.weight");
  return finer && options.type == WeightType::kQ4_K ? WeightType::kQ6_K
                                                    : options.type;
}

void AddTensor(const TinyModelOptions& options, const TinyTensor& tensor,
               GgufWriter* writer) {
  WeightType type = TypeOf(options, tensor);
  std::string bytes = Store(type, tensor.values);
  if (options.widened) {
    bytes = Store(WeightType::kF32, Widen(type, bytes));
    type = WeightType::kF32;
  }
  writer->AddTensor(tensor.gguf_name, type, tensor.shape, std::move(bytes));
}

}  // namespace

std::string TinyGguf(const TinyModelOptions& options,
                     std::size_t* header_bytes) {
  GgufWriter writer;
  const TinyTokenizer tokenizer = MakeTinyTokenizer(options.merges);
  AddGeneral(options, &writer);
  if (IsHybrid(options)) {
    AddHybridConfig(options, &writer);
  } else {
    AddLlamaConfig(options, &writer);
  }
  AddTokenizer(options, tokenizer, &writer);
  for (TinyTensor& made :
       MakeTinyWeights(options, static_cast<int>(tokenizer.tokens.size()))) {
    for (const TinyTensor& tensor : ToGgufForm(options, std::move(made))) {
      AddTensor(options, tensor, &writer);
    }
  }
  AddRopeDivisors(options, &writer);
  return writer.Finish(header_bytes);
}

kernels::Status WriteTinyGguf(const TinyModelOptions& options,
                              const std::string& path) {
  if (IsFolderOnly(options)) {
    return kernels::InvalidArgument(
        Message(path, ": only a folder can hold this model"));
  }
  return WriteFile(path, TinyGguf(options));
}

}  // namespace holdfast::model::testing
