// holdfast-make-model KIND PATH [--type TYPE]: writes a small random model.
#include <cstdio>
#include <string>
#include <string_view>

#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"

namespace {

using holdfast::kernels::WeightType;
using holdfast::model::testing::TinyModelOptions;

constexpr int kUsageError = 64;

int Usage() {
  std::fputs(
      "usage: holdfast-make-model KIND PATH [--type TYPE]\n"
      "Writes a small random model; the same arguments give the same bytes.\n"
      "kinds: tiny-llama      a GGUF file\n"
      "       tiny-bytes      a GGUF file, every byte a token\n"
      "       tiny-llama-hf   a Hugging Face folder; so are\n"
      "       tiny-llama3-hf, tiny-linear-hf, tiny-qwen2-hf, tiny-qwen3-hf,\n"
      "       tiny-qwen35-hf, tiny-qwen35-moe-hf, tiny-qwen3-next-hf\n"
      "       tiny-hybrid     a folder too, in bf16, large enough to try\n"
      "                       servers with\n"
      "types: f32 (default), f16, bf16; in GGUF q8_0, q4_0, q4_1, q5_0, q5_1,\n"
      "       q4_k, q5_k, q6_k; in folders f8_e4m3\n",
      stderr);
  return kUsageError;
}

bool ParseType(std::string_view name, TinyModelOptions* options) {
  const struct {
    std::string_view name;
    WeightType type;
  } types[] = {{"f32", WeightType::kF32},   {"f16", WeightType::kF16},
               {"bf16", WeightType::kBF16}, {"q8_0", WeightType::kQ8_0},
               {"q4_0", WeightType::kQ4_0}, {"q4_1", WeightType::kQ4_1},
               {"q5_0", WeightType::kQ5_0}, {"q5_1", WeightType::kQ5_1},
               {"q4_k", WeightType::kQ4_K}, {"q5_k", WeightType::kQ5_K},
               {"q6_k", WeightType::kQ6_K}, {"f8_e4m3", WeightType::kF8E4M3}};
  for (const auto& known : types) {
    if (known.name != name) continue;
    holdfast::model::testing::SetType(known.type, options);
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && !(argc == 5 && std::string_view(argv[3]) == "--type")) {
    return Usage();
  }
  std::string kind = argv[1];
  const bool folder = kind.ends_with("-hf") || kind == "tiny-hybrid";
  if (kind.ends_with("-hf")) kind.resize(kind.size() - 3);
  auto options = holdfast::model::testing::TinyVariant(kind);
  if (!options || (argc == 5 && !ParseType(argv[4], &*options))) {
    return Usage();
  }
  const auto status =
      folder ? holdfast::model::testing::WriteTinyFolder(*options, argv[2])
             : holdfast::model::testing::WriteTinyGguf(*options, argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "holdfast-make-model: %s\n", status.message().c_str());
  return 1;
}
