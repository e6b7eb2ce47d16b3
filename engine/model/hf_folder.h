// The files of a Hugging Face model folder.
#ifndef HOLDFAST_ENGINE_MODEL_HF_FOLDER_H_
#define HOLDFAST_ENGINE_MODEL_HF_FOLDER_H_

#include <string>
#include <vector>

#include "engine/model/json.h"
#include "engine/model/safetensors.h"
#include "kernels/status.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::model {

struct HfFolder {
  JsonDocument config;                   // config.json
  std::vector<SafetensorsFile> weights;  // one file, or the index's shards
  TokenizerSpec tokenizer;
  std::vector<std::string> files;  // every file that was read
};

// Reads config.json, model.safetensors or the shards of
// model.safetensors.index.json, tokenizer.json, and where they are there
// tokenizer_config.json, generation_config.json and chat_template.jinja. Errors
// name the file.
kernels::StatusOr<HfFolder> ReadHfFolder(const std::string& folder);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_HF_FOLDER_H_
