#include "tests/cache/pool_of_bytes.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "engine/cache/state_image.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "shared/check.h"
#include "shared/deadlines.h"

namespace holdfast::testing {
namespace {

using engine::BlockId;
using std::chrono::steady_clock;

// Cheap, and different for each word and seed.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

void Fill(std::byte* to, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t word = Mix(seed + 1);
  for (std::size_t at = 0; at < bytes; at += sizeof(word)) {
    word += 0x9e3779b97f4a7c15;
    const std::uint64_t value = word ^ (word >> 27);
    std::memcpy(to + at, &value, std::min(sizeof(value), bytes - at));
  }
}

PrefixKey Root(std::uint8_t fingerprint) {
  Sha256Digest digest{};
  digest[0] = fingerprint;
  return RootPrefixKey(digest, "");
}

}  // namespace

PoolOfBytes::PoolOfBytes(const CacheLayout& layout, int blocks,
                         const std::string& run_dir, std::uint8_t fingerprint)
    : layout_(layout), fingerprint_(fingerprint) {
  const std::uint64_t rows = layout.BlockBytes() * blocks;
  auto arena = MemfdArena::Create("test-pool", rows + engine::kLeaseTableBytes,
                                  ArenaWriters::kCreatorOnly);
  HF_CHECK(arena.ok());
  arena_ = std::make_unique<MemfdArena>(*std::move(arena));
  pool_ = std::make_unique<engine::BlockPool>(arena_->data(),
                                              layout.BlockBytes(), blocks);
  leases_ = std::make_unique<engine::Leases>(arena_->data() + rows, *pool_);
  attach::AttachClientOptions options;
  options.run_dir = run_dir;
  options.pool = arena_.get();
  options.fingerprint[0] = fingerprint;
  options.model_name = "bytes";
  options.layout = layout;
  options.block_count = static_cast<std::uint64_t>(blocks);
  options.lease_table_offset = rows;
  options.lease_slots = engine::kLeaseSlots;
  auto client = attach::AttachClient::Start(std::move(options));
  HF_CHECK(client.ok());
  client_ = *std::move(client);
  tiers_ = std::make_unique<engine::RemoteTiers>(*client_);
}

bool PoolOfBytes::WaitAttached() const {
  // A start may sweep its folder first.
  const auto until = steady_clock::now() + 6 * deadlines::kAttach;
  while (!tiers_->attached()) {
    if (steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void PoolOfBytes::FillBlock(std::byte* block, std::uint64_t seed,
                            std::uint64_t index, int rows) const {
  std::memset(block, 0, layout_.BlockBytes());
  std::size_t offset = 0;
  std::uint64_t part_number = 0;
  for (const View& view : layout_.views) {
    const std::size_t bytes = view.bytes_per_token / view.parts;
    for (std::uint32_t part = 0; part < view.parts; ++part) {
      Fill(block + offset, bytes * rows,
           Mix(seed * 1000003 + index * 4096 + ++part_number));
      offset += bytes * kBlockTokens;
    }
  }
}

void PoolOfBytes::FillState(std::byte* image, std::uint64_t seed,
                            int position) const {
  std::size_t offset = 0;
  std::uint64_t number = 0;
  for (const Section& section : layout_.sections) {
    Fill(image + offset, section.bytes,
         Mix(seed * 7919 + static_cast<std::uint64_t>(position) * 64 +
             ++number));
    offset += PagesUp(section.bytes);
  }
}

std::vector<BlockId> PoolOfBytes::StageState(std::uint64_t seed, int position) {
  AlignedBuffer image(engine::StateImageBytes(layout_));
  FillState(image.data(), seed, position);
  std::vector<BlockId> blocks;
  for (std::size_t at = 0; at < image.size(); at += pool_->block_bytes()) {
    blocks.push_back(pool_->Allocate());
    HF_CHECK(blocks.back() != engine::kNoBlock);
    std::memcpy(pool_->data(blocks.back()), image.data() + at,
                std::min(pool_->block_bytes(), image.size() - at));
  }
  return blocks;
}

engine::StoreOutcome PoolOfBytes::Store(engine::Tier tier,
                                        const Conversation& from,
                                        bool resident) {
  engine::StoreJob job;
  job.tier = tier;
  job.root = Root(fingerprint_);
  job.ids = from.ids;
  job.taint = from.taint;
  job.session_key = from.session_key;
  job.resident = resident;
  const int end = static_cast<int>(from.ids.size());
  for (int at = 0; at < end; at += kBlockTokens) {
    const BlockId block = pool_->Allocate();
    HF_CHECK(block != engine::kNoBlock);
    FillBlock(pool_->data(block), from.seed, at / kBlockTokens,
              std::min(kBlockTokens, end - at));
    job.blocks.push_back(block);
  }
  for (const int line : from.lines) {
    job.states.push_back(
        {line, engine::StoredState::kLine, StageState(from.seed, line)});
  }
  if (tier != engine::Tier::kDisk) {
    job.states.push_back(
        {end, engine::StoredState::kEnd, StageState(from.seed, end)});
  }
  std::vector<BlockId> lent = job.blocks;
  for (const auto& state : job.states) {
    lent.insert(lent.end(), state.blocks.begin(), state.blocks.end());
  }
  job.deadline = std::chrono::seconds(60);
  const auto lease = leases_->Grant(lent, steady_clock::now() + job.deadline);
  HF_CHECK(lease.has_value());
  job.lease = *lease;
  std::promise<engine::StoreOutcome> outcome;
  tiers_->Store(std::move(job), [&](engine::StoreOutcome result) {
    outcome.set_value(result);
  });
  const engine::StoreOutcome result = outcome.get_future().get();
  leases_->RevokeAll();
  for (const BlockId block : lent) {
    pool_->Unref(block, engine::BlockPool::Touch::kNo);
  }
  return result;
}

std::optional<engine::TierCandidate> PoolOfBytes::Find(engine::Tier tier,
                                                       const Conversation& of,
                                                       int position) {
  std::vector<PrefixKey> keys;
  const PrefixKey root = Root(fingerprint_);
  ExtendPrefixKeys(root, of.ids, keys);
  const engine::TierLookup lookup =
      tiers_->Lookup({root, of.ids, keys, of.session_key});
  for (const engine::TierCandidate& candidate : lookup.candidates) {
    if (candidate.tier == tier && candidate.position == position) {
      return candidate;
    }
  }
  return std::nullopt;
}

Restored PoolOfBytes::Restore(const engine::TierCandidate& candidate,
                              const Conversation& of,
                              std::chrono::milliseconds deadline,
                              std::function<bool()> stop) {
  Restored restored{.status = {},
                    .blocks = {},
                    .image = AlignedBuffer(engine::StateImageBytes(layout_))};
  std::vector<std::byte*> pointers;
  for (int at = 0; at < candidate.position; at += kBlockTokens) {
    const BlockId block = pool_->Allocate();
    HF_CHECK(block != engine::kNoBlock);
    restored.blocks.push_back(block);
    pointers.push_back(pool_->data(block));
  }
  restored.status = engine::RestoreAndWait(
      *tiers_, {.candidate = candidate,
                .ids = of.ids,
                .target = {.blocks = pointers,
                           .block_bytes = pool_->block_bytes(),
                           .have_tokens = 0,
                           .state_image = restored.image.span()},
                .deadline = deadline,
                .touch = true,
                .stop = std::move(stop)});
  return restored;
}

std::string PoolOfBytes::Compare(const Restored& got, const Conversation& of,
                                 int position) const {
  AlignedBuffer want(pool_->block_bytes());
  const int end = static_cast<int>(of.ids.size());
  for (int at = 0; at < position; at += kBlockTokens) {
    // Whole blocks travel: rows above the position are the conversation's.
    FillBlock(want.data(), of.seed, at / kBlockTokens,
              std::min(kBlockTokens, end - at));
    const BlockId block = got.blocks[at / kBlockTokens];
    if (std::memcmp(want.data(), pool_->data(block), pool_->block_bytes()) !=
        0) {
      return fmt::format("the rows from {} on", at);
    }
  }
  AlignedBuffer image(got.image.size());
  FillState(image.data(), of.seed, position);
  if (std::memcmp(image.data(), got.image.data(), image.size()) != 0) {
    return fmt::format("the state at {}", position);
  }
  return "";
}

void PoolOfBytes::Release(Restored& restored) {
  for (const BlockId block : std::exchange(restored.blocks, {})) {
    pool_->Unref(block, engine::BlockPool::Touch::kNo);
  }
}

void PoolOfBytes::FillWithOthers(std::byte value) {
  std::vector<BlockId> taken;
  for (BlockId block; (block = pool_->Allocate()) != engine::kNoBlock;) {
    std::memset(pool_->data(block), static_cast<int>(value),
                pool_->block_bytes());
    taken.push_back(block);
  }
  for (const BlockId block : taken) {
    pool_->Unref(block, engine::BlockPool::Touch::kNo);
  }
}

std::vector<std::uint64_t> PoolOfBytes::Sums() const {
  std::vector<std::uint64_t> sums;
  for (BlockId block = 0; block < pool_->blocks(); ++block) {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < pool_->block_bytes(); at += sizeof(sum)) {
      std::uint64_t word;
      std::memcpy(&word, pool_->data(block) + at, sizeof(word));
      sum = Mix(sum ^ word) + at;
    }
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace holdfast::testing
