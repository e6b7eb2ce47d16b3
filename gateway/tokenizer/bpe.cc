#include "gateway/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>

#include "absl/status/status.h"
#include "gateway/tokenizer/byte_alphabet.h"

namespace holdfast::gateway {
namespace {

constexpr std::uint32_t kNoId = 0xFFFFFFFF;
// Between two looks at whether to stop.
constexpr std::uint32_t kStepsBetweenLooks = 1 << 14;

// Counts steps, and looks now and then.
class StopCheck {
 public:
  explicit StopCheck(const std::atomic<bool>* stop) : stop_(stop) {}
  bool Stopped() {
    return stop_ != nullptr && ++steps_ % kStepsBetweenLooks == 0 &&
           stop_->load(std::memory_order_relaxed);
  }

 private:
  const std::atomic<bool>* const stop_;
  std::uint32_t steps_ = 0;
};

std::uint64_t PairKey(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

// Heap order: the lowest rank on top, then the leftmost.
bool After(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(const TokenizerSpec& spec,
                                const std::vector<std::string>& token_bytes) {
  Bpe bpe;
  std::unordered_map<std::string, unsigned> bytes;
  for (unsigned b = 0; b < 256; ++b) {
    bytes.emplace(TokenOfByte(static_cast<unsigned char>(b)), b);
  }
  bpe.byte_ids_.fill(kNoId);
  for (std::uint32_t id = 0; id < spec.tokens.size(); ++id) {
    const auto byte = bytes.find(spec.tokens[id]);
    if (byte != bytes.end()) bpe.byte_ids_[byte->second] = id;
  }
  if (spec.merges.size() % 3 != 0) {
    return absl::InvalidArgumentError(
        fmt::format("tokenizer of {}: {} numbers in merges, not a multiple "
                    "of 3",
                    spec.source, spec.merges.size()));
  }
  bpe.merges_.reserve(spec.merges.size() / 3);
  for (std::uint32_t rank = 0; rank < spec.merges.size() / 3; ++rank) {
    const std::uint32_t* merge = spec.merges.data() + std::size_t{3} * rank;
    for (int i = 0; i < 3; ++i) {
      if (merge[i] >= spec.tokens.size()) {
        return absl::InvalidArgumentError(
            fmt::format("tokenizer of {}: merge {} names id {}, past the "
                        "vocabulary of {}",
                        spec.source, rank, merge[i], spec.tokens.size()));
      }
    }
    bpe.merges_[PairKey(merge[0], merge[1])] = {rank, merge[2]};
  }
  if (spec.ignore_merges) {
    for (std::uint32_t id = 0; id < token_bytes.size(); ++id) {
      if (!token_bytes[id].empty()) bpe.words_[token_bytes[id]] = id;
    }
  }
  bpe.FindLongest(spec);
  return bpe;
}

// By the merges, not by the tokens' texts: those of added tokens are not here,
// and a file's may say anything.
void Bpe::FindLongest(const TokenizerSpec& spec) {
  // Merges come after those that make their parts; where they do not, a few
  // rounds settle it, and where nothing does, nothing is known.
  constexpr int kRounds = 8;
  std::vector<std::size_t> bytes(spec.tokens.size());
  for (const std::uint32_t id : byte_ids_) {
    if (id != kNoId) bytes[id] = 1;
  }
  bool changed = true;
  for (int round = 0; changed && round < kRounds; ++round) {
    changed = false;
    for (std::size_t i = 0; i + 2 < spec.merges.size(); i += 3) {
      const std::size_t left = bytes[spec.merges[i]];
      const std::size_t right = bytes[spec.merges[i + 1]];
      std::size_t& merged = bytes[spec.merges[i + 2]];
      if (left == 0 || right == 0 || left + right <= merged) continue;
      merged = left + right;
      changed = true;
    }
  }
  if (changed) {
    longest_ = std::numeric_limits<std::size_t>::max();
    return;
  }
  for (const std::size_t length : bytes) longest_ = std::max(longest_, length);
  for (const auto& [word, id] : words_) {
    longest_ = std::max(longest_, word.size());
  }
}

std::size_t Bpe::LeastIds(std::string_view piece) const {
  // Bytes that the vocabulary lacks have no ids.
  const auto known =
      std::count_if(piece.begin(), piece.end(), [this](const char c) {
        return byte_ids_[static_cast<unsigned char>(c)] != kNoId;
      });
  const auto bytes = static_cast<std::size_t>(known);
  return bytes / longest_ + (bytes % longest_ != 0 ? 1 : 0);
}

bool Bpe::Encode(std::string_view piece, const std::atomic<bool>* stop,
                 Scratch& scratch, std::vector<std::uint32_t>* ids) const {
  if (cache_->Find(piece, ids)) return true;
  const std::size_t before = ids->size();
  if (!words_.empty()) {
    const auto word = words_.find(std::string(piece));
    if (word != words_.end()) {
      ids->push_back(word->second);
      return true;
    }
  }
  if (!MergeWord(piece, stop, scratch, ids)) return false;
  cache_->Put(piece, std::span(*ids).subspan(before));
  return true;
}

const Bpe::Merge* Bpe::FindMerge(const Scratch& scratch,
                                 std::int32_t left) const {
  const Symbol& symbol = scratch.symbols[left];
  if (symbol.next < 0) return nullptr;
  const auto merge =
      merges_.find(PairKey(symbol.id, scratch.symbols[symbol.next].id));
  return merge == merges_.end() ? nullptr : &merge->second;
}

void Bpe::PushCandidate(std::int32_t left, Scratch& scratch) const {
  if (left < 0) return;
  const Merge* merge = FindMerge(scratch, left);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, left, merge->merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), After);
}

bool Bpe::MergeWord(std::string_view piece, const std::atomic<bool>* stop,
                    Scratch& scratch, std::vector<std::uint32_t>* ids) const {
  StopCheck check(stop);
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  for (const char c : piece) {
    // A byte that the vocabulary lacks is dropped, as Hugging Face does.
    const std::uint32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id == kNoId) continue;
    const auto index = static_cast<std::int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({.id = id, .previous = index - 1});
  }
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) {
    if (check.Stopped()) return false;
    PushCandidate(i, scratch);
  }
  while (!scratch.heap.empty()) {
    if (check.Stopped()) return false;
    const Candidate top = scratch.heap.front();
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), After);
    scratch.heap.pop_back();
    Symbol& left = symbols[top.left];
    if (!left.alive) continue;
    const Merge* merge = FindMerge(scratch, top.left);
    if (merge == nullptr || merge->merged != top.merged) continue;  // stale
    Symbol& right = symbols[left.next];
    right.alive = false;
    left.id = top.merged;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    PushCandidate(left.previous, scratch);
    PushCandidate(top.left, scratch);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.alive) ids->push_back(symbol.id);
  }
  return true;
}

}  // namespace holdfast::gateway
