// The generated models as Hugging Face folders.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/model/bpe_vocabulary.h"
#include "engine/model/message.h"
#include "engine/model/testing/quantize.h"
#include "engine/model/testing/tiny_hybrid.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_tokenizer.h"
#include "engine/model/testing/tiny_weights.h"

namespace holdfast::model::testing {
namespace {

using kernels::WeightType;

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

const char* TypeName(WeightType type) {
  switch (type) {
    case WeightType::kF16:
      return "F16";
    case WeightType::kBF16:
      return "BF16";
    default:
      return "F32";
  }
}

std::string RopeJson(const RopeConfig& rope) {
  const std::string theta = Message("\"rope_theta\": ", rope.theta);
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      return Message("{", theta, ", \"rope_type\": \"default\"}");
    case RopeConfig::Scaling::kLinear:
      return Message("{", theta,
                     ", \"rope_type\": \"linear\", \"factor\": ", rope.factor,
                     "}");
    case RopeConfig::Scaling::kLlama3:
      return Message(
          "{", theta, ", \"rope_type\": \"llama3\", \"factor\": ", rope.factor,
          ", \"low_freq_factor\": ", rope.low_freq_factor,
          ", \"high_freq_factor\": ", rope.high_freq_factor,
          ", \"original_max_position_embeddings\": ", rope.original_context,
          "}");
  }
  return "null";
}

std::string LlamaConfigJson(const TinyModelOptions& options,
                            const TinyTokenizer& tokenizer) {
  const std::string name = options.architecture == "llama"   ? "Llama"
                           : options.architecture == "qwen2" ? "Qwen2"
                                                             : "Qwen3";
  return Message(
      "{\n  \"architectures\": [\"", name, "ForCausalLM\"],\n",
      "  \"attention_bias\": false,\n",
      "  \"bos_token_id\": ", tokenizer.end_of_text, ",\n",
      "  \"eos_token_id\": ", tokenizer.turn_end, ",\n",
      "  \"head_dim\": ", options.head_dim, ",\n",
      "  \"hidden_act\": \"silu\",\n", "  \"hidden_size\": ", options.hidden,
      ",\n", "  \"intermediate_size\": ", options.ffn, ",\n",
      "  \"max_position_embeddings\": ", options.max_context, ",\n",
      "  \"mlp_bias\": false,\n", "  \"model_type\": \"", options.architecture,
      "\",\n", "  \"num_attention_heads\": ", options.heads, ",\n",
      "  \"num_hidden_layers\": ", options.layers, ",\n",
      "  \"num_key_value_heads\": ", options.kv_heads, ",\n",
      options.type != WeightType::kF8E4M3 || options.widened
          ? ""
          : "  \"quantization_config\": {\"activation_scheme\": \"dynamic\","
            " \"fmt\": \"e4m3\", \"quant_method\": \"fp8\","
            " \"weight_block_size\": [128, 128]},\n",
      "  \"rms_norm_eps\": 1e-05,\n",
      "  \"rope_parameters\": ", RopeJson(options.rope), ",\n",
      "  \"tie_word_embeddings\": ", options.tied_embeddings ? "true" : "false",
      ",\n", "  \"vocab_size\": ", tokenizer.tokens.size(), "\n}\n");
}

std::string PreTokenizerJson(const TinyModelOptions& options) {
  constexpr std::string_view kByteLevel =
      R"({"type": "ByteLevel", "add_prefix_space": false,)"
      R"( "trim_offsets": true, "use_regex": )";
  if (options.architecture == "llama") {
    return Message(R"({"type": "Sequence", "pretokenizers": [)",
                   R"({"type": "Digits", "individual_digits": true}, )",
                   kByteLevel, "true}]}");
  }
  return Message(R"({"type": "Sequence", "pretokenizers": [)",
                 R"({"type": "Split", "pattern": {"Regex": )",
                 Quoted(IsHybrid(options) ? kQwen35Pattern : kQwen2Pattern),
                 R"(}, "behavior": "Isolated", "invert": false}, )", kByteLevel,
                 "false}]}");
}

std::string AddedJson(const TinyTokenizer& tokenizer) {
  std::string out;
  for (const auto& added : tokenizer.added) {
    out += Message(out.empty() ? "" : ",", "\n    {\"id\": ", added.id,
                   ", \"content\": ", Quoted(tokenizer.tokens[added.id]),
                   ", \"single_word\": false, \"lstrip\": false,"
                   " \"rstrip\": false, \"normalized\": false, \"special\": ",
                   added.special ? "true" : "false", "}");
  }
  return out;
}

std::string TokenizerJson(const TinyModelOptions& options,
                          const TinyTokenizer& tokenizer) {
  std::string vocabulary, merges;
  const std::size_t plain = tokenizer.tokens.size() - tokenizer.added.size();
  for (std::size_t id = 0; id < plain; ++id) {
    vocabulary += Message(id == 0 ? "" : ",", "\n      ",
                          Quoted(tokenizer.tokens[id]), ": ", id);
  }
  for (const auto& [left, right] : tokenizer.merges) {
    merges += Message(merges.empty() ? "" : ",", "\n      [", Quoted(left),
                      ", ", Quoted(right), "]");
  }
  return Message(
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n",
      "  \"padding\": null,\n  \"added_tokens\": [", AddedJson(tokenizer),
      "\n  ],\n  \"normalizer\": ",
      options.architecture == "llama" ? "null" : R"({"type": "NFC"})",
      ",\n  \"pre_tokenizer\": ", PreTokenizerJson(options),
      ",\n  \"post_processor\": null,\n",
      R"(  "decoder": {"type": "ByteLevel", "add_prefix_space": true,)",
      R"( "trim_offsets": true, "use_regex": true},)", "\n",
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n",
      "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n",
      "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n",
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n",
      "    \"vocab\": {", vocabulary, "\n    },\n    \"merges\": [", merges,
      "\n    ]\n  }\n}\n");
}

std::string TokenizerConfigJson(const TinyModelOptions& options,
                                const TinyTokenizer& tokenizer) {
  const std::string end = Quoted(tokenizer.tokens[tokenizer.end_of_text]);
  return Message(
      "{\n  \"add_prefix_space\": false,\n  \"bos_token\": ", end,
      ",\n  \"eos_token\": ", Quoted(tokenizer.tokens[tokenizer.turn_end]),
      ",\n  \"pad_token\": ", end, ",\n  \"unk_token\": ", end,
      ",\n  \"clean_up_tokenization_spaces\": false,\n",
      "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n",
      "  \"chat_template\": ", Quoted(TinyChatTemplate(options)), "\n}\n");
}

// As one of the file's tensors has it.
struct StoredTensor {
  std::string name;
  const char* type = "";
  std::vector<std::int64_t> shape;
  std::string bytes;
};

bool IsF8(const TinyModelOptions& options, const TinyTensor& tensor) {
  return options.type == WeightType::kF8E4M3 &&
         (tensor.name.ends_with("_proj.weight") ||
          tensor.name.ends_with("in_proj_qkv.weight") ||
          tensor.name.ends_with("in_proj_z.weight"));
}

WeightType TypeOf(const TinyModelOptions& options, const TinyTensor& tensor) {
  if (tensor.shape.size() == 1) return WeightType::kF32;
  return options.type == WeightType::kF8E4M3 ? WeightType::kBF16 : options.type;
}

// Appends the tensor, and with F8_E4M3 its scales.
void StoreTensor(const TinyModelOptions& options, const TinyTensor& tensor,
                 std::vector<StoredTensor>* out) {
  WeightType type = TypeOf(options, tensor);
  std::string bytes;
  if (IsF8(options, tensor)) {
    const std::int64_t cols = tensor.shape.back();
    F8Matrix matrix = StoreF8(tensor.values, cols);
    if (!options.widened) {
      out->push_back({tensor.name, "F8_E4M3", tensor.shape, matrix.bytes});
      const auto blocks = [](std::int64_t size) { return (size + 127) / 128; };
      out->push_back({tensor.name + "_scale_inv",
                      "F32",
                      {blocks(tensor.shape.front()), blocks(cols)},
                      Store(WeightType::kF32, matrix.scales)});
      return;
    }
    bytes = Store(WeightType::kF32, WidenF8(matrix, cols));
    type = WeightType::kF32;
  } else {
    bytes = Store(type, tensor.values);
    if (options.widened) {
      bytes = Store(WeightType::kF32, Widen(type, bytes));
      type = WeightType::kF32;
    }
  }
  out->push_back({tensor.name, TypeName(type), tensor.shape, std::move(bytes)});
}

// The tensors whose number modulo `shards` is `shard`, as one file.
std::string Safetensors(const TinyModelOptions& options,
                        const std::vector<StoredTensor>& tensors, int shard) {
  std::string header = R"({"__metadata__": {"format": "pt"})";
  std::string data;
  for (std::size_t i = shard; i < tensors.size(); i += options.shards) {
    const StoredTensor& tensor = tensors[i];
    std::string shape;
    for (std::int64_t size : tensor.shape) {
      shape += Message(shape.empty() ? "" : ", ", size);
    }
    header +=
        Message(", ", Quoted(tensor.name), ": {\"dtype\": \"", tensor.type,
                "\", \"shape\": [", shape, "], \"data_offsets\": [",
                data.size(), ", ", data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) +
         header + data;
}

kernels::Status WriteWeights(const TinyModelOptions& options,
                             const std::string& folder, int vocab_size) {
  std::vector<StoredTensor> tensors;
  for (const TinyTensor& tensor : MakeTinyWeights(options, vocab_size)) {
    StoreTensor(options, tensor, &tensors);
  }
  if (options.shards == 1) {
    return WriteFile(folder + "/model.safetensors",
                     Safetensors(options, tensors, 0));
  }
  const auto name = [&](std::size_t shard) {
    return Message("model-", shard + 1, "-of-", options.shards, ".safetensors");
  };
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    map += Message(i == 0 ? "" : ", ", Quoted(tensors[i].name), ": ",
                   Quoted(name(i % options.shards)));
  }
  for (int shard = 0; shard < options.shards; ++shard) {
    HF_RETURN_IF_ERROR(WriteFile(folder + "/" + name(shard),
                                 Safetensors(options, tensors, shard)));
  }
  return WriteFile(folder + "/model.safetensors.index.json",
                   Message("{\"weight_map\": {", map, "}}\n"));
}

}  // namespace

kernels::Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return kernels::OkStatus();
  return kernels::DataLoss(Message(path, ": cannot be written"));
}

kernels::Status WriteTinyFolder(const TinyModelOptions& options,
                                const std::string& folder) {
  if (options.type != WeightType::kF32 && options.type != WeightType::kF16 &&
      options.type != WeightType::kBF16 &&
      options.type != WeightType::kF8E4M3) {
    return kernels::InvalidArgument(Message(
        folder, ": safetensors files hold f32, f16, bf16 and f8_e4m3 alone"));
  }
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) {
    return kernels::DataLoss(Message(folder, ": ", error.message()));
  }
  const TinyTokenizer tokenizer = MakeTinyTokenizer(options.merges);
  const auto write = [&](const char* name, const std::string& bytes) {
    return WriteFile(folder + "/" + name, bytes);
  };
  HF_RETURN_IF_ERROR(write(
      "config.json", IsHybrid(options) ? HybridConfigJson(options, tokenizer)
                                       : LlamaConfigJson(options, tokenizer)));
  HF_RETURN_IF_ERROR(
      write("tokenizer.json", TokenizerJson(options, tokenizer)));
  HF_RETURN_IF_ERROR(
      write("tokenizer_config.json", TokenizerConfigJson(options, tokenizer)));
  HF_RETURN_IF_ERROR(
      write("generation_config.json",
            Message("{\n  \"bos_token_id\": ", tokenizer.end_of_text,
                    ",\n  \"eos_token_id\": [", tokenizer.turn_end, ", ",
                    tokenizer.end_of_text, "]\n}\n")));
  return WriteWeights(options, folder,
                      static_cast<int>(tokenizer.tokens.size()));
}

}  // namespace holdfast::model::testing
