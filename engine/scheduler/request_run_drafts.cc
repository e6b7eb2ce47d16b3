// Decode steps of several tokens.
#include <algorithm>
#include <utility>

#include "engine/drafting/drafter.h"
#include "engine/model_status.h"
#include "engine/scheduler/request_run.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

constexpr int kMaxDrafts = 15;

}  // namespace

// Only where a row has the same bits beside others. A step stays in its block,
// so that a guess never costs anybody a block.
void RequestRun::TakeDrafts() {
  drafted_ids_.clear();
  const std::span<const std::int32_t> ahead = answer_.Ahead();
  if (ahead.empty() && state_.drafter == nullptr) return;
  if (!state_.rule.any_split()) return;
  const int row = sequence_.rows();
  const int most = std::min({kMaxDrafts, state_.options.max_rows - 1,
                             state_.options.max_context - row - 1,
                             kBlockTokens - 1 - row % kBlockTokens});
  if (most <= 0) return;
  std::vector<std::int32_t> drafts(ahead.begin(), ahead.end());
  if (drafts.empty()) drafts = state_.drafter->Draft(ids_, most);
  if (drafts.empty()) return;
  before_drafts_ = state_.section_buffers.Take();
  if (before_drafts_ == nullptr) return;
  drafts.resize(std::min<std::size_t>(drafts.size(), most));
  drafted_ids_ = {ids_.back()};
  drafted_ids_.insert(drafted_ids_.end(), drafts.begin(), drafts.end());
}

model::SequenceRows RequestRun::DraftedRows() {
  state_.section_buffers.Copy(sequence_.sections.get(), before_drafts_.get());
  drafted_logits_.resize(drafted_ids_.size() * logits_.size());
  model::SequenceRows rows = RowsOf(drafted_ids_, /*logits=*/false);
  rows.all_logits = drafted_logits_;
  return rows;
}

void RequestRun::DecodedDrafts(absl::Status status) {
  const std::size_t rows = drafted_ids_.size();
  std::size_t committed = 0;
  while (status.ok()) {
    const auto logits =
        std::span(drafted_logits_)
            .subspan(committed * logits_.size(), logits_.size());
    std::ranges::copy(logits, logits_.begin());
    if (!AllFinite(logits_)) status = NotFinite(/*logits=*/true);
    if (!status.ok()) break;
    ++committed;
    NextToken();
    if (phase_ != Phase::kDecode || committed == rows ||
        ids_.back() != drafted_ids_[committed]) {
      break;
    }
  }
  if (status.ok() && committed < rows) status = ForwardAgain(committed);
  const absl::Status appended =
      Append(RowsOf(std::span(drafted_ids_).first(committed), false), status,
             state_.rule.OfDecode());
  before_drafts_.reset();
  if (!appended.ok()) return Fail(appended);
  reached_ = std::max(reached_, sequence_.rows());
}

// The sections go back to where the step began. Rows above stay in the block,
// where nothing reads them before others are written there.
absl::Status RequestRun::ForwardAgain(std::size_t rows) {
  std::swap(sequence_.sections, before_drafts_);
  const model::SequenceRows again =
      RowsOf(std::span(drafted_ids_).first(rows), /*logits=*/false);
  return ToAbslStatus(state_.model.Forward({&again, 1}));
}

}  // namespace holdfast::engine
