#include "engine/model/loader.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/model/gguf.h"
#include "engine/model/hf_folder.h"
#include "engine/model/llama.h"
#include "engine/model/llama_config.h"
#include "engine/model/llama_weights.h"
#include "engine/model/message.h"
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

StatusOr<LoadedModel> Load(std::string name, LlamaConfig config,
                           const LlamaNames& names, TensorMap* tensors,
                           TokenizerSpec tokenizer, kernels::Backend* backend,
                           const LoadOptions& options) {
  if (options.max_rows < 1) {
    return InvalidArgument(
        Message("a model cannot run launches of ", options.max_rows, " rows"));
  }
  if (options.max_context < 0 || options.max_context > config.max_context) {
    return InvalidArgument(
        Message(tensors->source(), ": a context of ", options.max_context,
                " tokens was asked for, the model's is ", config.max_context));
  }
  if (options.max_context > 0) config.max_context = options.max_context;
  HF_RETURN_IF_ERROR(FitTokenizer(config.vocab_size, &tokenizer));
  HF_ASSIGN_OR_RETURN(LlamaWeights weights,
                      LoadLlamaWeights(config, names, tensors, backend));
  LoadedModel loaded;
  HF_ASSIGN_OR_RETURN(loaded.model,
                      MakeLlama(std::move(name), config, std::move(weights),
                                options.state_type, options.max_rows, backend));
  loaded.tokenizer = std::move(tokenizer);
  return loaded;
}

StatusOr<LoadedModel> LoadGguf(const std::string& path,
                               kernels::Backend* backend,
                               const LoadOptions& options) {
  HF_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  HF_ASSIGN_OR_RETURN(const LlamaConfig config, LlamaConfigFromGguf(file));
  HF_ASSIGN_OR_RETURN(TokenizerSpec tokenizer, TokenizerFromGguf(file));
  HF_ASSIGN_OR_RETURN(const auto general_name, file.String("general.name"));
  std::string name(general_name.value_or(""));
  if (name.empty()) name = std::filesystem::path(path).stem().string();
  TensorMap tensors(path);
  HF_RETURN_IF_ERROR(tensors.Add(file.tensors()));
  HF_ASSIGN_OR_RETURN(LoadedModel loaded,
                      Load(std::move(name), config, kGgufLlamaNames, &tensors,
                           std::move(tokenizer), backend, options));
  loaded.files = {path};
  return loaded;
}

StatusOr<LoadedModel> LoadFolder(const std::string& path,
                                 kernels::Backend* backend,
                                 const LoadOptions& options) {
  HF_ASSIGN_OR_RETURN(HfFolder folder, ReadHfFolder(path));
  TensorMap tensors(path);
  for (const SafetensorsFile& file : folder.weights) {
    HF_RETURN_IF_ERROR(tensors.Add(file.tensors()));
  }
  // A path that ends in "/" has an empty last part.
  std::filesystem::path last(path);
  if (last.filename().empty()) last = last.parent_path();
  HF_ASSIGN_OR_RETURN(
      LoadedModel loaded,
      Load(last.filename().string(), folder.config, kHfLlamaNames, &tensors,
           std::move(folder.tokenizer), backend, options));
  loaded.files = std::move(folder.files);
  return loaded;
}

}  // namespace

StatusOr<LoadedModel> LoadModel(const std::string& path,
                                kernels::Backend& backend,
                                const LoadOptions& options) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || status.type() == std::filesystem::file_type::not_found) {
    return kernels::NotFound(Message(path, ": no such file or folder"));
  }
  if (std::filesystem::is_directory(status)) {
    return LoadFolder(path, &backend, options);
  }
  return LoadGguf(path, &backend, options);
}

}  // namespace holdfast::model
