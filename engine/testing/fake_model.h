// A model and a backend for tests of everything around them. A row depends on
// its id, its position and every row below it *as the blocks hold them*, so a
// wrong, stale or missing row changes every row and logit after it. A recurrent
// one has two sections besides: a running hash of all tokens, and the last
// three ids; either of them, wrong, changes every row after it too.
#ifndef HOLDFAST_ENGINE_TESTING_FAKE_MODEL_H_
#define HOLDFAST_ENGINE_TESTING_FAKE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "kernels/backend.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::engine::testing {

// Knows memory and blocks alone; any arithmetic aborts.
class FakeBackend final : public kernels::Backend {
 public:
  explicit FakeBackend(
      kernels::Exactness exactness = kernels::Exactness::kRowInvariant)
      : info_{.name = "fake", .target = "none", .exactness = exactness} {}
  const kernels::BackendInfo& info() const override { return info_; }
  kernels::Status Prepare(const kernels::Limits&) override { return {}; }
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(
      std::size_t bytes) override;
  kernels::StatusOr<std::unique_ptr<kernels::Matrix>> PackMatrix(
      std::span<const kernels::WeightTensor> parts) override;
  kernels::StatusOr<std::unique_ptr<kernels::Buffer>> UploadVector(
      const kernels::WeightTensor& tensor) override;
  kernels::StatusOr<std::unique_ptr<kernels::RopeTable>> MakeRopeTable(
      std::span<const float> inverse_frequencies, int max_positions) override;
  void EmbedRows(const kernels::Matrix&, std::span<const std::int32_t>,
                 float*) override;
  void RmsNorm(const float*, const float*, float, int, int, float*) override;
  void HeadNorm(float*, const float*, float, int, int, int, int) override;
  void MatMul(const kernels::Matrix&, const float*, int, const float*,
              float*) override;
  void Add(float*, const float*, int, int) override;
  void Rope(float*, int, int, int, const kernels::RopeTable&,
            std::span<const kernels::RowSpan>) override;
  void StoreKv(const kernels::KvShape&, int, const float*, const float*, int,
               std::span<const kernels::RowSpan>) override;
  void Attention(const kernels::KvShape&, int, const float*, int, int, float,
                 std::span<const kernels::RowSpan>, float*) override;
  void SiluMul(const float*, int, int, float*) override;
  void SigmoidMul(float*, const float*, int, int, int) override;
  void GatedDeltaNet(const kernels::GdnShape&, const kernels::GdnWeights&,
                     const kernels::GdnPlace&, const float*, int,
                     std::span<const kernels::RowSpan>, float*) override;
  void MoeExperts(const kernels::MoeShape&,
                  std::span<const kernels::ExpertWeights>, const float*, int,
                  const float*, int, float*) override;
  void AddGated(float*, const float*, const float*, int, int, int) override;
  void CopyBlockRows(const kernels::KvShape& shape, const std::byte* from,
                     int rows, std::byte* to) override;
  void ZeroBlockRows(const kernels::KvShape& shape, std::byte* block,
                     int first_row) override;
  void Copy(const void* from, std::size_t bytes, void* to) override;
  void Read(const void* from, std::size_t bytes, void* to) override;
  kernels::Status Write(const void* from, std::size_t bytes, void* to) override;
  kernels::Status Synchronize() override { return {}; }

 private:
  kernels::BackendInfo info_;
};

class FakeModel final : public model::Model {
 public:
  static constexpr int kVocab = 300;

  enum class Kind { kAttentionOnly, kRecurrent };

  explicit FakeModel(Kind kind = Kind::kAttentionOnly);
  const model::ModelInfo& info() const override { return info_; }
  const CacheLayout& layout() const override { return layout_; }
  const kernels::KvShape& kv_shape() const override { return shape_; }
  void SetGrid(std::uint32_t tokens) override { layout_.grid_tokens = tokens; }
  kernels::Status Forward(
      std::span<const model::SequenceRows> sequences) override;
  kernels::Status LogitsFromHidden(const std::byte* sections,
                                   std::span<float> logits) override;

  // As on a grid backend: a row depends on which rows its launch has, those of
  // other sequences too.
  bool launch_matters = false;
  // Called before each Forward with its first position and its rows.
  std::function<void(int position, int rows)> before_forward;
  // Logits of the row at this position are not finite.
  std::optional<int> broken_position;
  // Every token but these gets its logits from a hash; these get -100, so that
  // a generation ends when a test says so.
  std::vector<std::int32_t> unlikely;

  int forwards() const { return forwards_; }
  int rows_forwarded() const { return rows_forwarded_; }
  // Calls of Forward, however many sequences each had.
  int launches() const { return launches_; }
  int max_context() const { return info_.max_context; }

 private:
  // What precedes a row: the rows below it and, of a recurrent model, its
  // state.
  struct State {
    std::uint64_t below = 0;
    std::uint64_t running = 0;
    std::uint64_t launch = 0;
    std::array<std::uint64_t, 3> tail{};
  };
  State Load(const model::SequenceRows& rows, std::size_t sequences) const;
  void Store(const State& state, std::uint64_t row, std::byte* sections) const;
  std::uint64_t Row(std::int32_t id, int position, State& state) const;
  void Logits(const std::byte* h_last, bool broken,
              std::span<float> logits) const;

  model::ModelInfo info_;
  CacheLayout layout_;
  std::size_t h_last_offset_ = 0;
  kernels::KvShape shape_;
  int forwards_ = 0;  // of each sequence
  int launches_ = 0;
  int rows_forwarded_ = 0;
};

// Ids 0 to 255 are the bytes, 256 is an end-of-turn token, 257 an added token
// with the text "<tool>", the rest two-letter tokens.
TokenizerSpec FakeTokenizer();
inline constexpr std::int32_t kFakeEos = 256;

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_FAKE_MODEL_H_
