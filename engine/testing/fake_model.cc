#include "engine/testing/fake_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "shared/check.h"

namespace holdfast::engine::testing {
namespace {

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15ull ^ (b + 0x632BE59BD9B4E019ull);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A block is 256 K values, then 256 V values, of eight bytes each.
std::uint64_t LoadRow(std::byte* const* blocks, int position, int view) {
  std::uint64_t value;
  std::memcpy(&value,
              blocks[position / kBlockTokens] + view * kBlockTokens * 8 +
                  position % kBlockTokens * 8,
              8);
  return value;
}

void StoreRow(std::byte* const* blocks, int position, int view,
              std::uint64_t value) {
  std::memcpy(blocks[position / kBlockTokens] + view * kBlockTokens * 8 +
                  position % kBlockTokens * 8,
              &value, 8);
}

[[noreturn]] void NoArithmetic() { std::abort(); }

}  // namespace

kernels::StatusOr<std::unique_ptr<kernels::Buffer>> FakeBackend::Allocate(
    std::size_t bytes) {
  class HeapBuffer final : public kernels::Buffer {
   public:
    explicit HeapBuffer(std::size_t bytes)
        : pages_(bytes / kBlockAlignment + 1) {
      data_ = pages_.data();
      bytes_ = bytes;
    }

   private:
    struct alignas(kBlockAlignment) Page {
      std::byte bytes[kBlockAlignment];
    };
    std::vector<Page> pages_;
  };
  return std::unique_ptr<kernels::Buffer>(new HeapBuffer(bytes));
}
kernels::StatusOr<std::unique_ptr<kernels::Matrix>> FakeBackend::PackMatrix(
    std::span<const kernels::WeightTensor>) {
  return kernels::Unimplemented("fake backend");
}
kernels::StatusOr<std::unique_ptr<kernels::Buffer>> FakeBackend::UploadVector(
    const kernels::WeightTensor&) {
  return kernels::Unimplemented("fake backend");
}
kernels::StatusOr<std::unique_ptr<kernels::RopeTable>>
FakeBackend::MakeRopeTable(std::span<const float>, int) {
  return kernels::Unimplemented("fake backend");
}
void FakeBackend::EmbedRows(const kernels::Matrix&,
                            std::span<const std::int32_t>, float*) {
  NoArithmetic();
}
void FakeBackend::RmsNorm(const float*, const float*, float, int, int, float*) {
  NoArithmetic();
}
void FakeBackend::HeadNorm(float*, const float*, float, int, int, int, int) {
  NoArithmetic();
}
void FakeBackend::MatMul(const kernels::Matrix&, const float*, int,
                         const float*, float*) {
  NoArithmetic();
}
void FakeBackend::Add(float*, const float*, int, int) { NoArithmetic(); }
void FakeBackend::Rope(float*, int, int, int, const kernels::RopeTable&,
                       std::span<const kernels::RowSpan>) {
  NoArithmetic();
}
void FakeBackend::StoreKv(const kernels::KvShape&, int, const float*,
                          const float*, int,
                          std::span<const kernels::RowSpan>) {
  NoArithmetic();
}
void FakeBackend::Attention(const kernels::KvShape&, int, const float*, int,
                            int, float, std::span<const kernels::RowSpan>,
                            float*) {
  NoArithmetic();
}
void FakeBackend::SiluMul(const float*, int, int, float*) { NoArithmetic(); }
void FakeBackend::SigmoidMul(float*, const float*, int, int, int) {
  NoArithmetic();
}
void FakeBackend::GatedDeltaNet(const kernels::GdnShape&,
                                const kernels::GdnWeights&,
                                const kernels::GdnPlace&, const float*, int,
                                std::span<const kernels::RowSpan>, float*) {
  NoArithmetic();
}
void FakeBackend::MoeExperts(const kernels::MoeShape&,
                             std::span<const kernels::ExpertWeights>,
                             const float*, int, const float*, int, float*) {
  NoArithmetic();
}
void FakeBackend::AddGated(float*, const float*, const float*, int, int, int) {
  NoArithmetic();
}

void FakeBackend::Copy(const void* from, std::size_t bytes, void* to) {
  std::memcpy(to, from, bytes);
}
void FakeBackend::Read(const void* from, std::size_t bytes, void* to) {
  std::memcpy(to, from, bytes);
}
kernels::Status FakeBackend::Write(const void* from, std::size_t bytes,
                                   void* to) {
  std::memcpy(to, from, bytes);
  return {};
}
void FakeBackend::CopyBlockRows(const kernels::KvShape&, const std::byte* from,
                                int rows, std::byte* to) {
  const int granules = (rows + kGranuleTokens - 1) / kGranuleTokens;
  for (int view = 0; view < 2; ++view) {
    const std::size_t at = view * kBlockTokens * 8;
    std::memcpy(to + at, from + at, granules * kGranuleTokens * 8);
  }
}

void FakeBackend::ZeroBlockRows(const kernels::KvShape&, std::byte* block,
                                int first_row) {
  for (int view = 0; view < 2; ++view) {
    std::memset(block + (view * kBlockTokens + first_row) * 8, 0,
                (kBlockTokens - first_row) * 8);
  }
}

FakeModel::FakeModel(Kind kind) {
  info_ = {.name = "fake",
           .architecture = "fake",
           .vocab_size = kVocab,
           .max_context = 4096,
           .layers = 1,
           .hidden = 8,
           .config_digest_input = "fake",
           .weight_bytes = 0};
  layout_.views = {{"K", 8, 1}, {"V", 8, 1}};
  if (kind == Kind::kRecurrent) {
    layout_.sections = {{"running", 8}, {"tail", 24}};
  }
  layout_.sections.push_back({kHLast, 32});
  h_last_offset_ = model::ComputeSectionOffsets(layout_).offsets.back();
  shape_ = {.layers = 1,
            .kv_heads = 1,
            .head_dim = 2,
            .state_type = kernels::StateType::kF32};
}

FakeModel::State FakeModel::Load(const model::SequenceRows& rows,
                                 std::size_t sequences) const {
  State state;
  if (launch_matters) {
    state.launch = Mix(rows.position + 31 * (sequences - 1),
                       static_cast<std::uint64_t>(rows.ids.size()));
  }
  for (int i = 0; i < rows.position; ++i) {
    const std::uint64_t row = LoadRow(rows.blocks, i, 0);
    HF_CHECK(LoadRow(rows.blocks, i, 1) == Mix(row, 1));
    state.below ^= Mix(row, i);
  }
  if (!layout_.Recurrent() || rows.position == 0) return state;
  std::memcpy(&state.running, rows.sections, 8);
  std::memcpy(state.tail.data(), rows.sections + 64, 24);
  return state;
}

void FakeModel::Store(const State& state, std::uint64_t row,
                      std::byte* sections) const {
  for (int i = 0; i < 8; ++i) {
    const auto value = static_cast<float>(Mix(row, i) >> 44);
    std::memcpy(sections + h_last_offset_ + 4 * i, &value, 4);
  }
  if (!layout_.Recurrent()) return;
  std::memcpy(sections, &state.running, 8);
  std::memcpy(sections + 64, state.tail.data(), 24);
}

std::uint64_t FakeModel::Row(std::int32_t id, int position,
                             State& state) const {
  std::uint64_t row = Mix(Mix(state.below, id),
                          static_cast<std::uint64_t>(position) + state.launch);
  if (layout_.Recurrent()) {
    const auto& tail = state.tail;
    row = Mix(Mix(row, state.running), tail[0] + 3 * tail[1] + 7 * tail[2]);
    state.running = Mix(state.running, id);
    state.tail = {tail[1], tail[2], static_cast<std::uint64_t>(id) + 1};
  }
  state.below ^= Mix(row, position);
  return row;
}

void FakeModel::Logits(const std::byte* h_last, bool broken,
                       std::span<float> logits) const {
  std::array<std::uint32_t, 8> hidden;
  std::memcpy(hidden.data(), h_last, sizeof(hidden));
  std::uint64_t row = 0;
  for (std::uint32_t bits : hidden) row = Mix(row, bits);
  for (int i = 0; i < kVocab; ++i) {
    const auto bits = static_cast<double>(Mix(row, i) >> 40);
    logits[i] = static_cast<float>(bits / (1 << 21) - 4.0);
  }
  for (std::int32_t id : unlikely) logits[id] = -100;
  if (broken) logits[7] = std::numeric_limits<float>::quiet_NaN();
}

kernels::Status FakeModel::Forward(
    std::span<const model::SequenceRows> sequences) {
  ++launches_;
  for (const model::SequenceRows& rows : sequences) {
    const int count = static_cast<int>(rows.ids.size());
    if (before_forward) before_forward(rows.position, count);
    ++forwards_;
    rows_forwarded_ += count;
    State state = Load(rows, sequences.size());
    for (int n = 0; n < count; ++n) {
      const int position = rows.position + n;
      const std::uint64_t row = Row(rows.ids[n], position, state);
      StoreRow(rows.blocks, position, 0, row);
      StoreRow(rows.blocks, position, 1, Mix(row, 1));
      const bool last = n + 1 == count;
      if (!last && rows.all_logits.empty()) continue;
      Store(state, row, rows.sections);
      const std::byte* h_last = rows.sections + h_last_offset_;
      const bool broken = broken_position == position;
      if (last && !rows.last_logits.empty()) {
        Logits(h_last, broken, rows.last_logits);
      }
      if (!rows.all_logits.empty()) {
        Logits(h_last, broken, rows.all_logits.subspan(n * kVocab, kVocab));
      }
    }
  }
  return {};
}

kernels::Status FakeModel::LogitsFromHidden(const std::byte* sections,
                                            std::span<float> logits) {
  Logits(sections + h_last_offset_, false, logits);
  return {};
}

TokenizerSpec FakeTokenizer() {
  TokenizerSpec spec;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) ||
                           (byte >= 161 && byte <= 172) || byte >= 174;
    const int c = printable ? byte : next++;
    std::string text;
    if (c < 0x80) {
      text.push_back(static_cast<char>(c));
    } else {
      text.push_back(static_cast<char>(0xC0 | c >> 6));
      text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
    spec.tokens.push_back(text);
  }
  spec.tokens.push_back("<eot>");
  spec.tokens.push_back("<tool>");
  for (int i = 258; i < FakeModel::kVocab; ++i) {
    spec.tokens.push_back({static_cast<char>('a' + i % 26),
                           static_cast<char>('a' + i / 26 % 26)});
  }
  spec.added_tokens.push_back(
      {.id = kFakeEos, .content = "<eot>", .special = true});
  spec.added_tokens.push_back({.id = 257, .content = "<tool>"});
  spec.eos_ids = {kFakeEos};
  return spec;
}

}  // namespace holdfast::engine::testing
