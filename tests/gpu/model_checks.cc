#include "tests/gpu/model_checks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/golden_file.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "shared/cache_layout.h"

namespace holdfast::gpu_check {
namespace {

using kernels::Status;
using kernels::StatusOr;

constexpr int kContext = 8192;
// Rows of a launch that takes the ways of few rows: all in float.
constexpr int kFew = 4;
constexpr int kPrefillRows = 64;
// Of the logits: root of the mean squares of difference and golden numbers.
constexpr double kFewLimit = 1e-3;
// Through bf16 products and bf16 rows, layer after layer.
constexpr double kPrefillLimit = 3e-2;
// A row whose routing is nearly a tie takes another expert after a rounding.
constexpr double kExpertsPrefillLimit = 1e-1;

// A sequence in device memory.
class DeviceSequence {
 public:
  static StatusOr<std::unique_ptr<DeviceSequence>> Make(
      const model::Model& model, kernels::CudaBackend& backend, int tokens) {
    auto sequence = std::make_unique<DeviceSequence>();
    sequence->block_bytes_ = model.layout().RowBytes() * kBlockTokens;
    for (int at = 0; at < tokens; at += kBlockTokens) {
      HF_ASSIGN_OR_RETURN(auto block, backend.Allocate(sequence->block_bytes_));
      sequence->table_.push_back(static_cast<std::byte*>(block->data()));
      sequence->memory_.push_back(std::move(block));
    }
    sequence->section_bytes_ =
        model::ComputeSectionOffsets(model.layout()).bytes;
    HF_ASSIGN_OR_RETURN(sequence->sections_,
                        backend.Allocate(sequence->section_bytes_));
    return sequence;
  }

  // Rows below `tokens` and the state of another sequence.
  void CopyFrom(const DeviceSequence& from, int tokens,
                const model::Model& model, kernels::Backend& backend) {
    for (int at = 0; at < tokens; at += kBlockTokens) {
      backend.CopyBlockRows(model.kv_shape(), from.table_[at / kBlockTokens],
                            std::min(kBlockTokens, tokens - at),
                            table_[at / kBlockTokens]);
    }
    backend.Copy(from.sections(), section_bytes_, sections());
    position_ = tokens;
  }

  model::SequenceRows Next(std::span<const std::int32_t> ids) {
    model::SequenceRows rows;
    rows.ids = ids;
    rows.position = position_;
    rows.blocks = table_.data();
    rows.sections = sections();
    position_ += static_cast<int>(ids.size());
    return rows;
  }

  // Every byte of blocks and sections.
  std::vector<std::byte> Bytes(kernels::Backend& backend) const {
    std::vector<std::byte> bytes(table_.size() * block_bytes_ + section_bytes_);
    for (std::size_t i = 0; i < table_.size(); ++i) {
      backend.Read(table_[i], block_bytes_, &bytes[i * block_bytes_]);
    }
    backend.Read(sections(), section_bytes_,
                 &bytes[table_.size() * block_bytes_]);
    return bytes;
  }

 private:
  std::byte* sections() const {
    return static_cast<std::byte*>(sections_->data());
  }

  int position_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t section_bytes_ = 0;
  std::vector<std::unique_ptr<kernels::Buffer>> memory_;
  std::vector<std::byte*> table_;
  std::unique_ptr<kernels::Buffer> sections_;
};

struct Tiny {
  model::testing::TempFolder folder;
  std::unique_ptr<model::Model> model;
};

Status Load(const std::string& kind, kernels::StateType state, int max_rows,
            kernels::CudaBackend& backend, Tiny* tiny) {
  const auto options = model::testing::TinyVariant(kind);
  if (!options) return kernels::NotFound("no generated model " + kind);
  const std::string path = tiny->folder.File(kind);
  HF_RETURN_IF_ERROR(model::testing::WriteTinyFolder(*options, path));
  model::LoadOptions load;
  load.state_type = state;
  load.max_rows = max_rows;
  load.max_context = kContext;
  HF_ASSIGN_OR_RETURN(auto loaded, model::LoadModel(path, backend, load));
  tiny->model = std::move(loaded.model);
  return kernels::OkStatus();
}

StatusOr<double> GoldenError(const std::string& kind, const std::string& golden,
                             kernels::StateType state, int step,
                             int most_tokens, kernels::CudaBackend& backend) {
  Tiny tiny;
  HF_RETURN_IF_ERROR(Load(kind, state, step, backend, &tiny));
  const auto cases =
      model::testing::ReadGolden(golden + "/" + kind + ".golden");
  if (cases.empty()) {
    return kernels::NotFound("no golden file of " + kind + " in " + golden);
  }
  const std::size_t vocab = tiny.model->info().vocab_size;
  model::testing::GoldenDifference difference;
  for (const auto& one : cases) {
    const int tokens = std::min(static_cast<int>(one.ids.size()), most_tokens);
    HF_ASSIGN_OR_RETURN(auto sequence,
                        DeviceSequence::Make(*tiny.model, backend, tokens));
    std::vector<float> logits(tokens * vocab);
    for (int at = 0; at < tokens; at += step) {
      const std::size_t rows = std::min(step, tokens - at);
      auto next = sequence->Next(
          std::span<const std::int32_t>(one.ids).subspan(at, rows));
      next.all_logits =
          std::span<float>(logits).subspan(at * vocab, rows * vocab);
      HF_RETURN_IF_ERROR(tiny.model->Forward({&next, 1}));
    }
    for (const auto& row : one.rows) {
      if (static_cast<int>(row.position) >= tokens) continue;
      difference.Add(row.logits, [&](std::size_t i) {
        return logits[row.position * vocab + i];
      });
    }
  }
  return difference.relative_rms();
}

void Golden(kernels::CudaBackend& backend, const std::string& golden,
            const ModelSizes& sizes, Report& report) {
  constexpr struct {
    const char* kind;
    double prefill_limit;
  } kModels[] = {{"tiny-qwen35", kPrefillLimit},
                 {"tiny-qwen35-moe", kExpertsPrefillLimit}};
  for (const auto& [kind, prefill_limit] : kModels) {
    const auto check = [&](const char* way, kernels::StateType state, int step,
                           int most_tokens, double limit) {
      const auto error =
          GoldenError(kind, golden, state, step, most_tokens, backend);
      char detail[64] = {};
      if (error.ok()) {
        std::snprintf(detail, sizeof(detail), "error %.1e, limit %.0e", *error,
                      limit);
      }
      report.Add(
          "model", std::string(kind) + " " + way,
          error.ok() && *error <= limit ? Outcome::kOk : Outcome::kFailed,
          error.ok() ? detail : error.status().message());
    };
    check("few rows", kernels::StateType::kF32, kFew, sizes.few_row_tokens,
          kFewLimit);
    check("prefill", kernels::StateType::kBF16, kPrefillRows,
          sizes.prefill_tokens, prefill_limit);
  }
}

// Two chunks cold, twice; then the second chunk from copies of what the first
// left, in other blocks: rows, state and logits must be the same bytes.
Status Grid(kernels::CudaBackend& backend, int chunk) {
  Tiny tiny;
  HF_RETURN_IF_ERROR(
      Load("tiny-qwen35", kernels::StateType::kBF16, chunk, backend, &tiny));
  const model::ModelInfo& info = tiny.model->info();
  std::vector<std::int32_t> ids(2 * chunk);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * i * 31 % info.vocab_size);
  }
  const auto half = [&](int n) {
    return std::span<const std::int32_t>(ids).subspan(n * chunk, chunk);
  };
  struct End {
    std::vector<std::byte> bytes;
    std::vector<float> logits;
  };
  const auto forward = [&](DeviceSequence& sequence, int n,
                           End* end) -> Status {
    end->logits.resize(info.vocab_size);
    auto rows = sequence.Next(half(n));
    rows.last_logits = end->logits;
    HF_RETURN_IF_ERROR(tiny.model->Forward({&rows, 1}));
    end->bytes = sequence.Bytes(backend);
    return backend.Synchronize();
  };
  End ends[3];
  for (int run = 0; run < 2; ++run) {
    HF_ASSIGN_OR_RETURN(auto cold,
                        DeviceSequence::Make(*tiny.model, backend, 2 * chunk));
    HF_ASSIGN_OR_RETURN(auto kept,
                        DeviceSequence::Make(*tiny.model, backend, 2 * chunk));
    HF_RETURN_IF_ERROR(forward(*cold, 0, &ends[run]));
    if (run == 1) kept->CopyFrom(*cold, chunk, *tiny.model, backend);
    HF_RETURN_IF_ERROR(forward(*cold, 1, &ends[run]));
    if (run == 1) HF_RETURN_IF_ERROR(forward(*kept, 1, &ends[2]));
  }
  for (int i = 1; i < 3; ++i) {
    const char* which = i == 1 ? "a second cold run" : "a resumed run";
    if (ends[i].bytes != ends[0].bytes) {
      return kernels::DataLoss(std::string("rows or state of ") + which +
                               " differ from the first cold run's");
    }
    if (std::memcmp(ends[i].logits.data(), ends[0].logits.data(),
                    ends[0].logits.size() * sizeof(float)) != 0) {
      return kernels::DataLoss(std::string("logits of ") + which +
                               " differ from the first cold run's");
    }
  }
  return kernels::OkStatus();
}

}  // namespace

void CheckModels(kernels::CudaBackend& backend, const std::string& golden,
                 const ModelSizes& sizes, Report& report) {
  Golden(backend, golden, sizes, report);
  const Status status = Grid(backend, sizes.chunk);
  report.Add("exactness",
             "resume on the grid, chunks of " + std::to_string(sizes.chunk),
             status.ok() ? Outcome::kOk : Outcome::kFailed,
             status.ok() ? "equal bytes" : status.message());
}

}  // namespace holdfast::gpu_check
