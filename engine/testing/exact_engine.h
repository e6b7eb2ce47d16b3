// Whole engines on a generated model, and whether two of them hold the same
// bytes.
#ifndef HOLDFAST_ENGINE_TESTING_EXACT_ENGINE_H_
#define HOLDFAST_ENGINE_TESTING_EXACT_ENGINE_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/loader.h"
#include "engine/testing/test_engine.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::engine::testing {

inline constexpr int kExactBlocks = 12;

struct ExactVariant {
  int threads = 2;
  int max_rows = 512;  // the longest step: 1 is row by row
  kernels::StateType state_type = kernels::StateType::kBF16;
  int anchors = 32;
  kernels::Exactness exactness = kernels::Exactness::kRowInvariant;
  int grid_tokens = 0;  // 0: the model's
};

class ExactEngine {
 public:
  ExactEngine(const std::string& path, const ExactVariant& variant)
      : ExactEngine(
            path, variant,
            *kernels::MakeHostBackend({.threads = variant.threads,
                                       .exactness = variant.exactness})) {}
  // On another backend: its exactness is its own.
  ExactEngine(const std::string& path, const ExactVariant& variant,
              std::unique_ptr<kernels::Backend> own_backend)
      : backend(std::move(own_backend)) {
    loaded = *model::LoadModel(path, *backend,
                               {.state_type = variant.state_type,
                                .max_rows = std::max(variant.max_rows, 32),
                                .max_context = kExactBlocks * kBlockTokens,
                                .grid_tokens = variant.grid_tokens});
    engine = std::make_unique<TestEngine>(*loaded.model, *backend, kExactBlocks,
                                          loaded.tokenizer, variant.max_rows,
                                          variant.anchors);
  }
  Answer Run(const Request& request) { return engine->Run(request); }
  int vocab() const { return loaded.model->info().vocab_size; }

  std::unique_ptr<kernels::Backend> backend;
  model::LoadedModel loaded;
  std::unique_ptr<TestEngine> engine;
};

// Logits of the last row forwarded, rows and sections of the resident.
inline void ExpectSameBytes(ExactEngine& a, ExactEngine& b) {
  const EngineState& x = a.engine->state();
  EXPECT_EQ(0, std::memcmp(a.engine->logits.data(), b.engine->logits.data(),
                           a.engine->logits.size() * sizeof(float)));
  ASSERT_TRUE(a.engine->resident() && b.engine->resident());
  const Sequence& mine = *a.engine->resident();
  const Sequence& other = *b.engine->resident();
  ASSERT_EQ(mine.ids, other.ids);
  const CacheLayout& layout = x.model.layout();
  const auto places = model::ComputeSectionOffsets(layout);
  const auto bytes_of = [](ExactEngine& engine, const std::byte* from,
                           std::size_t bytes) {
    return BytesOf(*engine.backend, from, bytes);
  };
  for (std::size_t i = 0; i < layout.sections.size(); ++i) {
    const std::size_t at = places.offsets[i];
    const std::size_t bytes = layout.sections[i].bytes;
    EXPECT_TRUE(bytes_of(a, mine.sections.get() + at, bytes) ==
                bytes_of(b, other.sections.get() + at, bytes))
        << layout.sections[i].name;
  }
  const std::size_t bytes = x.pool.block_bytes();
  const int rows = mine.rows();
  for (int i = 0; i * kBlockTokens < rows; ++i) {
    const int here = std::min(kBlockTokens, rows - i * kBlockTokens);
    const auto rows_of = [&](ExactEngine& engine, const Sequence& from) {
      const kernels::KvShape& shape = engine.loaded.model->kv_shape();
      const auto memory = *engine.backend->Allocate(bytes);
      auto* const to = static_cast<std::byte*>(memory->data());
      engine.backend->CopyBlockRows(shape, from.table.pointer(i), here, to);
      if (here < kBlockTokens) engine.backend->ZeroBlockRows(shape, to, here);
      return BytesOf(*engine.backend, to, bytes);
    };
    EXPECT_TRUE(rows_of(a, mine) == rows_of(b, other)) << "block " << i;
  }
}

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_EXACT_ENGINE_H_
