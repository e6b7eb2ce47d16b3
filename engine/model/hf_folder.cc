#include "engine/model/hf_folder.h"

#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/model/mapped_file.h"
#include "engine/model/message.h"
#include "engine/model/tokenizer_files.h"

namespace holdfast::model {
namespace {

using kernels::Status;
using kernels::StatusOr;

class FolderReader {
 public:
  explicit FolderReader(const std::string& folder) : folder_(folder) {}

  StatusOr<HfFolder> Read() {
    HF_ASSIGN_OR_RETURN(JsonDocument config, NeededJson("config.json"));
    HF_ASSIGN_OR_RETURN(std::vector<SafetensorsFile> weights, ReadWeights());
    HF_ASSIGN_OR_RETURN(TokenizerSpec tokenizer, ReadTokenizer(config));
    return HfFolder{std::move(config), std::move(weights), std::move(tokenizer),
                    std::move(files_)};
  }

 private:
  std::string Path(std::string_view name) const {
    return folder_ + "/" + std::string(name);
  }

  // Nothing when the folder has no such file.
  StatusOr<std::optional<MappedFile>> Open(const char* name) {
    auto file = MappedFile::Open(Path(name));
    if (!file.ok()) {
      if (file.status().code() != kernels::StatusCode::kNotFound) {
        return file.status();
      }
      return std::optional<MappedFile>();
    }
    files_.push_back(Path(name));
    return std::optional<MappedFile>(std::move(file).value());
  }

  StatusOr<std::optional<JsonDocument>> Json(const char* name) {
    HF_ASSIGN_OR_RETURN(const auto file, Open(name));
    if (!file) return std::optional<JsonDocument>();
    HF_ASSIGN_OR_RETURN(JsonDocument document,
                        JsonDocument::Parse(file->text(), Path(name)));
    return std::optional<JsonDocument>(std::move(document));
  }

  StatusOr<JsonDocument> NeededJson(const char* name) {
    HF_ASSIGN_OR_RETURN(auto document, Json(name));
    if (!document) {
      return kernels::NotFound(Message(Path(name), " is missing"));
    }
    return std::move(*document);
  }

  StatusOr<std::vector<SafetensorsFile>> ReadWeights() {
    constexpr char kSingle[] = "model.safetensors";
    constexpr char kIndex[] = "model.safetensors.index.json";
    HF_ASSIGN_OR_RETURN(const auto index, Json(kIndex));
    std::set<std::string> names;
    if (index) {
      HF_RETURN_IF_ERROR(ReadIndex(index->root(), Path(kIndex), &names));
    } else {
      names.insert(kSingle);
    }
    std::vector<SafetensorsFile> weights;
    for (const std::string& name : names) {
      HF_ASSIGN_OR_RETURN(SafetensorsFile file,
                          SafetensorsFile::Open(Path(name)));
      files_.push_back(Path(name));
      weights.push_back(std::move(file));
    }
    return weights;
  }

  static Status ReadIndex(JsonValue index, const std::string& file,
                          std::set<std::string>* names) {
    const auto map = index.Find("weight_map");
    if (!map || !map->is_object() || map->size() == 0) {
      return kernels::InvalidArgument(
          Message(file, ": weight_map is missing or empty"));
    }
    for (auto [tensor, shard] : map->members()) {
      // Shards lie beside the index, nowhere else.
      if (!shard.is_string() ||
          shard.string().find('/') != std::string_view::npos) {
        return kernels::InvalidArgument(
            Message(file, ": the shard of ", tensor, " is no file name"));
      }
      names->insert(std::string(shard.string()));
    }
    return kernels::OkStatus();
  }

  StatusOr<TokenizerSpec> ReadTokenizer(const JsonDocument& config) {
    HF_ASSIGN_OR_RETURN(const JsonDocument json, NeededJson("tokenizer.json"));
    HF_ASSIGN_OR_RETURN(TokenizerSpec spec,
                        TokenizerFromJson(json.root(), Path("tokenizer.json")));
    HF_ASSIGN_OR_RETURN(const auto tokenizer_config,
                        Json("tokenizer_config.json"));
    if (tokenizer_config) {
      HF_RETURN_IF_ERROR(AddTokenizerConfig(
          tokenizer_config->root(), Path("tokenizer_config.json"), &spec));
    }
    HF_ASSIGN_OR_RETURN(const auto generation, Json("generation_config.json"));
    if (generation) {
      HF_RETURN_IF_ERROR(
          AddEosIds(generation->root(), Path("generation_config.json"), &spec));
    } else {
      HF_RETURN_IF_ERROR(AddEosIds(config.root(), Path("config.json"), &spec));
    }
    HF_ASSIGN_OR_RETURN(const auto chat_template, Open("chat_template.jinja"));
    if (chat_template) spec.chat_template = std::string(chat_template->text());
    return spec;
  }

  const std::string& folder_;
  std::vector<std::string> files_;
};

}  // namespace

StatusOr<HfFolder> ReadHfFolder(const std::string& folder) {
  return FolderReader(folder).Read();
}

}  // namespace holdfast::model
