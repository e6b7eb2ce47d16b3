// Forward allocates nothing: every allocation of the process is counted here.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace {

std::atomic<long> allocations = 0;

void* Counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return Counted(bytes); }
void* operator new[](std::size_t bytes) { return Counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace holdfast::model {
namespace {

void ExpectNoAllocation(const testing::TinyModelOptions& tiny) {
  testing::TempFolder folder;
  const std::string path = folder.File("model");
  ASSERT_TRUE(testing::WriteTinyFolder(tiny, path).ok());
  auto backend = kernels::MakeHostBackend({.threads = 2});
  ASSERT_TRUE(backend.ok());
  LoadOptions options;
  options.max_rows = 300;
  options.max_context = 1024;
  auto loaded = LoadModel(path, **backend, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();

  Model& model = *loaded->model;
  const std::size_t vocab = model.info().vocab_size;
  const std::vector<std::int32_t> ids(100, 5);
  std::vector<float> all(100 * vocab), last(vocab);
  std::vector<testing::TestSequence> sequences;
  std::vector<SequenceRows> launch;
  sequences.reserve(3);
  for (int i = 0; i < 3; ++i) {
    sequences.emplace_back(model, 300, std::byte{0});
    launch.push_back(sequences.back().Next(ids));
  }
  launch[0].all_logits = all;
  launch[2].last_logits = last;
  const long before = allocations;
  const auto status = model.Forward(launch);
  const long after = allocations;
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(after, before);
  EXPECT_GT(before, 0);
}

TEST(AllocationTest, ForwardMakesNone) {
  for (const char* variant : {"tiny-llama", "tiny-qwen35", "tiny-qwen35-moe"}) {
    SCOPED_TRACE(variant);
    ExpectNoAllocation(*testing::TinyVariant(variant));
  }
}

}  // namespace
}  // namespace holdfast::model
