// Tiers in memory, which do what the cache service promises, at once.
#ifndef HOLDFAST_ENGINE_TESTING_FAKE_TIERS_H_
#define HOLDFAST_ENGINE_TESTING_FAKE_TIERS_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/tiering.h"
#include "engine/cache/tiers.h"
#include "engine/pool/block_pool.h"
#include "shared/cache_layout.h"

namespace holdfast::engine::testing {

class FakeTiers final : public CacheTiers {
 public:
  struct Entry {
    Tier tier = Tier::kDisk;
    PrefixKey root{};
    std::vector<KeyId> ids = {};
    std::vector<std::byte> rows = {};
    int position = 0;
    std::vector<std::byte> image = {};
    std::string session_key = {};
    int taint = kUntainted;
    StoredState kind = StoredState::kLine;
    bool resident = false;
    int job = 0;  // those of one store are one manifest's
  };

  explicit FakeTiers(const BlockPool& pool) : pool_(&pool) {}
  // Whose blocks are lent from now on.
  void ReadFrom(const BlockPool& pool) { pool_ = &pool; }

  bool attached() const override {
    return outcome != TierLookup::Outcome::kDetached;
  }
  void NoteMeasured(const PlannerRates& rates) override { measured = rates; }
  TierLookup Lookup(const PromptView& prompt) override {
    ++lookups;
    TierLookup lookup{.outcome = outcome,
                      .minimum_tokens = minimum_tokens,
                      .store_entry_bytes = store_entry_bytes,
                      .remembered = remembered};
    if (outcome != TierLookup::Outcome::kAnswered) return lookup;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      if (entry.root != prompt.root || entry.ids.size() > prompt.ids.size() ||
          !std::equal(entry.ids.begin(), entry.ids.end(), prompt.ids.begin())) {
        continue;
      }
      TierCandidate candidate{.tier = entry.tier, .position = entry.position};
      candidate.key[0] = static_cast<std::uint8_t>(i);
      candidate.bytes = entry.rows.size() + entry.image.size();
      candidate.taint = entry.taint;
      candidate.own_session = !prompt.session_key.empty() &&
                              prompt.session_key == entry.session_key &&
                              entry.tier != Tier::kDisk;
      candidate.state = entry.kind;
      if (entry.position > entry.taint && !candidate.own_session) continue;
      lookup.candidates.push_back(candidate);
    }
    std::ranges::sort(lookup.candidates, std::greater{},
                      &TierCandidate::position);
    return lookup;
  }
  AdmittedLines Admit(const PromptView&, int resumed_at, const std::string&,
                      int head) override {
    admitted_from.push_back(resumed_at);
    heads.push_back(head);
    return {.disk = admit, .store = store_line};
  }
  // Ends at once, or, when they are held, when the test says so.
  std::unique_ptr<TierRestore> StartRestore(RestoreJob job) override {
    ++restores;
    have_tokens.push_back(job.target.have_tokens);
    deadlines.push_back(job.deadline);
    return std::make_unique<Restore>(*this, std::move(job));
  }
  void Store(StoreJob job, std::function<void(StoreOutcome)> done) override {
    if (hold && passes-- <= 0) {
      held.emplace_back(std::move(job), std::move(done));
      return;
    }
    Write(job);
    done(StoreOutcome::kStored);
  }
  // Reads what was lent, as far as the job says.
  void Write(const StoreJob& job) {
    ++jobs;
    std::vector<std::byte> rows;
    for (const BlockId block : job.blocks) Append(rows, block);
    for (const StoreJob::State& state : job.states) {
      Entry entry{.tier = job.tier,
                  .root = job.root,
                  .position = state.position,
                  .session_key = job.session_key,
                  .taint = job.taint,
                  .kind = state.kind,
                  .resident = job.resident,
                  .job = jobs};
      entry.ids.assign(job.ids.begin(), job.ids.begin() + state.position);
      entry.rows = rows;
      for (const BlockId block : state.blocks) Append(entry.image, block);
      entry.image.resize(image_bytes);
      if (on_stored) on_stored(entry);
      entries.push_back(std::move(entry));
    }
  }

  std::uint64_t FreeStore(std::uint64_t bytes) override {
    ++store_asked;
    const std::uint64_t freed = std::min(bytes, store_bytes);
    store_bytes -= freed;
    if (on_freed) on_freed(freed);
    return freed;
  }
  void Drained() override {
    if (killed) return;
    drained = entries;
    held_when_drained = held.size();
  }
  std::vector<KeptResident> Residents() override {
    std::vector<KeptResident> kept;
    for (std::size_t i = 0; i < drained.size(); ++i) {
      const Entry& entry = drained[i];
      if (!entry.resident || entry.kind != StoredState::kEnd) continue;
      TierCandidate candidate{.tier = entry.tier, .position = entry.position};
      candidate.key[0] = static_cast<std::uint8_t>(i);
      candidate.bytes = entry.rows.size() + entry.image.size();
      candidate.taint = entry.taint;
      candidate.own_session = true;
      kept.push_back({.candidate = candidate,
                      .root = entry.root,
                      .ids = entry.ids,
                      .session_key = entry.session_key,
                      .lines = {},
                      .messages = {}});
      for (const Entry& other : drained) {
        if (other.job != entry.job) continue;
        if (other.kind == StoredState::kLine) {
          kept.back().lines.push_back(other.position);
        } else if (other.kind != StoredState::kEnd) {
          kept.back().messages.push_back(other.position);
        }
        if (other.kind == StoredState::kTurn) kept.back().turn = other.position;
      }
    }
    drained.clear();
    return kept;
  }

  // Restores under way, the oldest first.
  int restoring() const { return static_cast<int>(under_way_.size()); }
  // Of the oldest: it ends so.
  void EndRestore(const absl::Status& status = absl::OkStatus()) {
    Restore& restore = *under_way_.front();
    under_way_.erase(under_way_.begin());
    restore.End(status);
  }

  std::vector<Entry> drained;  // of the last planned stop, until it is read
  std::size_t held_when_drained = 0;
  bool killed = false;  // before the planned stop had ended
  TierLookup::Outcome outcome = TierLookup::Outcome::kAnswered;
  int minimum_tokens = 0;
  std::size_t image_bytes = 0;
  std::vector<int> admit;
  int store_line = 0;
  std::uint64_t store_entry_bytes = 0;
  absl::Status restore_status;
  int failures = -1;  // how many restores end so; negative: all
  bool hold = false;  // stores wait in `held`
  int passes = 0;     // but for so many
  bool hold_restores = false;
  std::vector<std::pair<StoreJob, std::function<void(StoreOutcome)>>> held;
  std::function<void(const Entry&)> on_stored;
  std::vector<Entry> entries;
  int jobs = 0;                   // stored so far
  PlannerRates remembered;        // of an earlier engine
  PlannerRates measured;          // as told last
  std::uint64_t store_bytes = 0;  // that could be given back
  int store_asked = 0;
  std::function<void(std::uint64_t)> on_freed;
  int lookups = 0;
  int restores = 0;
  std::vector<int> admitted_from;
  std::vector<int> heads;
  std::vector<int> have_tokens;
  std::vector<std::chrono::milliseconds> deadlines;

 private:
  class Restore final : public TierRestore {
   public:
    Restore(FakeTiers& tiers, RestoreJob job)
        : tiers_(tiers), job_(std::move(job)) {
      tiers_.under_way_.push_back(this);
      if (tiers_.hold_restores) return;
      const bool fails = tiers_.failures != 0;
      if (tiers_.failures > 0) --tiers_.failures;
      tiers_.EndRestore(fails ? tiers_.restore_status : absl::OkStatus());
    }
    ~Restore() override { std::erase(tiers_.under_way_, this); }
    std::optional<RestoreEnd> Poll() override { return end_; }
    void End(const absl::Status& status) {
      end_ = {status, 0.001};
      tiers_.Fill(job_, status.ok());
      if (job_.bell != nullptr) job_.bell->Ring();
    }

   private:
    FakeTiers& tiers_;
    const RestoreJob job_;
    std::optional<RestoreEnd> end_;
  };

  void Fill(const RestoreJob& job, bool whole) {
    const Entry& entry = Find(job.candidate);
    const RestoreTarget& to = job.target;
    const std::size_t have = to.have_tokens / kBlockTokens;
    for (std::size_t i = have; i < to.blocks.size(); ++i) {
      // A failure comes after half of the rows were written.
      if (!whole && i > (have + to.blocks.size()) / 2) break;
      std::memcpy(to.blocks[i], entry.rows.data() + i * to.block_bytes,
                  to.block_bytes);
    }
    if (whole) std::ranges::copy(entry.image, to.state_image.begin());
  }

  // A manifest has several states, each at its position.
  const Entry& Find(const TierCandidate& candidate) const {
    const Entry& named = entries[candidate.key[0]];
    const auto at = std::ranges::find_if(entries, [&](const Entry& entry) {
      return entry.job == named.job && entry.position == candidate.position;
    });
    return at == entries.end() ? named : *at;
  }

  void Append(std::vector<std::byte>& to, BlockId block) const {
    const std::byte* data = pool_->data(block);
    to.insert(to.end(), data, data + pool_->block_bytes());
  }

  const BlockPool* pool_;
  std::vector<Restore*> under_way_;
};

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_FAKE_TIERS_H_
