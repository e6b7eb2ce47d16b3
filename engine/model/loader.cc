#include "engine/model/loader.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/model/gguf.h"
#include "engine/model/gguf_config_reader.h"
#include "engine/model/hf_config_reader.h"
#include "engine/model/hf_folder.h"
#include "engine/model/llama.h"
#include "engine/model/llama_config.h"
#include "engine/model/llama_weights.h"
#include "engine/model/message.h"
#include "engine/model/qwen35/config.h"
#include "engine/model/qwen35/names.h"
#include "engine/model/qwen35/qwen35.h"
#include "engine/model/qwen35/weights.h"
#include "engine/model/tensors.h"
#include "engine/model/tokenizer_files.h"

namespace holdfast::model {
namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::StatusOr;

// The tokenizer's ids must all have an embedding; every embedding gets an entry
// (without text where the tokenizer has none).
Status FitTokenizer(int vocab_size, TokenizerSpec* spec) {
  const auto rows = static_cast<std::size_t>(vocab_size);
  if (spec->tokens.size() > rows) {
    return InvalidArgument(Message(spec->source, ": the tokenizer has ",
                                   spec->tokens.size(), " tokens, the model ",
                                   rows));
  }
  spec->tokens.resize(rows);
  return kernels::OkStatus();
}

// The context asked for; the tokenizer made to fit the vocabulary.
template <typename Config>
Status ApplyOptions(const LoadOptions& options, const std::string& source,
                    Config* config, TokenizerSpec* tokenizer) {
  if (options.max_rows < 1) {
    return InvalidArgument(
        Message("a model cannot run launches of ", options.max_rows, " rows"));
  }
  if (options.max_context < 0 || options.max_context > config->max_context) {
    return InvalidArgument(
        Message(source, ": a context of ", options.max_context,
                " tokens was asked for, the model's is ", config->max_context));
  }
  if (options.max_context > 0) config->max_context = options.max_context;
  return FitTokenizer(config->vocab_size, tokenizer);
}

StatusOr<LoadedModel> LoadLlama(std::string name, LlamaConfig config,
                                const LlamaNames& names, TensorMap* tensors,
                                TokenizerSpec tokenizer,
                                kernels::Backend* backend,
                                const LoadOptions& options) {
  HF_RETURN_IF_ERROR(
      ApplyOptions(options, tensors->source(), &config, &tokenizer));
  HF_ASSIGN_OR_RETURN(LlamaWeights weights,
                      LoadLlamaWeights(config, names, tensors, backend));
  LoadedModel loaded;
  HF_ASSIGN_OR_RETURN(loaded.model,
                      MakeLlama(std::move(name), config, std::move(weights),
                                options.state_type, options.max_rows, backend));
  loaded.tokenizer = std::move(tokenizer);
  return loaded;
}

StatusOr<LoadedModel> LoadQwen35(std::string name, Qwen35Config config,
                                 const Qwen35Names& names, TensorMap* tensors,
                                 TokenizerSpec tokenizer,
                                 kernels::Backend* backend,
                                 const LoadOptions& options) {
  HF_RETURN_IF_ERROR(
      ApplyOptions(options, tensors->source(), &config, &tokenizer));
  HF_ASSIGN_OR_RETURN(Qwen35Weights weights,
                      LoadQwen35Weights(config, names, tensors, backend));
  LoadedModel loaded;
  HF_ASSIGN_OR_RETURN(
      loaded.model, MakeQwen35(std::move(name), config, std::move(weights),
                               options.state_type, options.max_rows, backend));
  loaded.tokenizer = std::move(tokenizer);
  return loaded;
}

Status UnknownArchitecture(const std::string& file, const char* key,
                           const std::string& name, const char* known) {
  return kernels::Unimplemented(
      Message(file, ": unknown ", key, " '", name, "'; known: ", known));
}

StatusOr<LoadedModel> LoadGguf(const std::string& path,
                               kernels::Backend* backend,
                               const LoadOptions& options) {
  HF_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  HF_ASSIGN_OR_RETURN(const std::string architecture, GgufArchitecture(file));
  const bool qwen35 = IsQwen35GgufArchitecture(architecture);
  if (!qwen35 && !IsLlamaArchitecture(architecture)) {
    return UnknownArchitecture(path, "general.architecture", architecture,
                               "llama, qwen2, qwen3, qwen35, qwen35moe");
  }
  LlamaConfig llama_config;
  Qwen35Config qwen35_config;
  if (qwen35) {
    HF_ASSIGN_OR_RETURN(qwen35_config, Qwen35ConfigFromGguf(file));
  } else {
    HF_ASSIGN_OR_RETURN(llama_config, LlamaConfigFromGguf(file));
  }
  HF_ASSIGN_OR_RETURN(TokenizerSpec tokenizer, TokenizerFromGguf(file));
  HF_ASSIGN_OR_RETURN(const auto general_name, file.String("general.name"));
  std::string name(general_name.value_or(""));
  if (name.empty()) name = std::filesystem::path(path).stem().string();
  TensorMap tensors(path);
  HF_RETURN_IF_ERROR(tensors.Add(file.tensors()));
  HF_ASSIGN_OR_RETURN(
      LoadedModel loaded,
      qwen35 ? LoadQwen35(std::move(name), qwen35_config,
                          GgufQwen35Names(qwen35_config), &tensors,
                          std::move(tokenizer), backend, options)
             : LoadLlama(std::move(name), llama_config, kGgufLlamaNames,
                         &tensors, std::move(tokenizer), backend, options));
  loaded.files = {path};
  return loaded;
}

StatusOr<LoadedModel> LoadFolder(const std::string& path,
                                 kernels::Backend* backend,
                                 const LoadOptions& options) {
  HF_ASSIGN_OR_RETURN(HfFolder folder, ReadHfFolder(path));
  const std::string config_file = path + "/config.json";
  const JsonValue json = folder.config.root();
  HF_ASSIGN_OR_RETURN(const std::string type, HfModelType(json, config_file));
  TensorMap tensors(path);
  for (const SafetensorsFile& file : folder.weights) {
    HF_RETURN_IF_ERROR(tensors.Add(file.tensors()));
  }
  // A path that ends in "/" has an empty last part.
  std::filesystem::path last(path);
  if (last.filename().empty()) last = last.parent_path();
  LoadedModel loaded;
  if (IsQwen35ModelType(type)) {
    HF_ASSIGN_OR_RETURN(const Qwen35Config config,
                        Qwen35ConfigFromJson(json, config_file));
    HF_ASSIGN_OR_RETURN(
        loaded, LoadQwen35(last.filename().string(), config,
                           HfQwen35Names(config, tensors), &tensors,
                           std::move(folder.tokenizer), backend, options));
  } else if (IsLlamaArchitecture(type)) {
    HF_ASSIGN_OR_RETURN(const LlamaConfig config,
                        LlamaConfigFromJson(json, config_file));
    HF_ASSIGN_OR_RETURN(
        loaded,
        LoadLlama(last.filename().string(), config, kHfLlamaNames, &tensors,
                  std::move(folder.tokenizer), backend, options));
  } else {
    return UnknownArchitecture(
        config_file, "model_type", type,
        "llama, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_next");
  }
  loaded.files = std::move(folder.files);
  return loaded;
}

}  // namespace

StatusOr<LoadedModel> LoadModel(const std::string& path,
                                kernels::Backend& backend,
                                const LoadOptions& options) {
  if (options.grid_tokens < 0 || options.grid_tokens % kBlockTokens != 0) {
    return kernels::InvalidArgument(Message("a grid of ", options.grid_tokens,
                                            " tokens is no multiple of ",
                                            kBlockTokens));
  }
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || status.type() == std::filesystem::file_type::not_found) {
    return kernels::NotFound(Message(path, ": no such file or folder"));
  }
  HF_ASSIGN_OR_RETURN(LoadedModel loaded,
                      std::filesystem::is_directory(status)
                          ? LoadFolder(path, &backend, options)
                          : LoadGguf(path, &backend, options));
  if (options.grid_tokens > 0) {
    loaded.model->SetGrid(static_cast<std::uint32_t>(options.grid_tokens));
  }
  return loaded;
}

}  // namespace holdfast::model
