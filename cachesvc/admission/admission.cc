#include "cachesvc/admission/admission.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace holdfast::cachesvc {
namespace {

// Rows changed in one batch.
constexpr std::size_t kBatchRows = 10000;

}  // namespace

std::uint64_t LineChild(const PrefixKey& key) {
  std::uint64_t child;
  std::memcpy(&child, key.data(), sizeof(child));
  return child == 0 ? 1 : child;
}

std::vector<std::uint64_t> PlanAnchors(const AdmissionRules& rules,
                                       const AdmissionRequest& request,
                                       std::span<const LineState> lines) {
  if (request.guest || request.prompt_tokens < rules.min_tokens) return {};
  const auto position = [&](std::size_t i) {
    return (i + 1) * request.grid_tokens;
  };
  // The prefill starts there or passes it, its state is a cold run's, and
  // nothing is there.
  const auto may = [&](std::size_t i) {
    return position(i) >= request.resume_position &&
           position(i) <= request.taint && !lines[i].has_anchor;
  };
  std::set<std::uint64_t> chosen;
  // Counted with this prompt: a line forwarded cold the second time is the
  // second count.
  for (std::size_t i = lines.size(); i > 0; --i) {
    const bool cold = position(i - 1) > request.resume_position;
    if (lines[i - 1].row.count + (cold ? 1 : 0) < rules.admit_after) continue;
    if (may(i - 1)) chosen.insert(position(i - 1));
    break;
  }
  if (request.opening_message) {
    std::uint64_t left = rules.session_lines;
    for (std::size_t i = lines.size(); i > 0 && left > 0; --i) {
      if (position(i - 1) > *request.opening_message) continue;
      --left;
      if (may(i - 1)) chosen.insert(position(i - 1));
    }
  }
  // The deepest line that an earlier prompt passed, where that one went on
  // differently. Prompts of which one ends there part from nobody.
  for (std::size_t i = lines.size(); i > 0; --i) {
    const LineState& line = lines[i - 1];
    if (line.row.count == 0 && line.row.child == 0) continue;
    if (line.row.child != 0 && line.next != 0 && line.row.child != line.next &&
        may(i - 1)) {
      chosen.insert(position(i - 1));
    }
    break;
  }
  return {chosen.begin(), chosen.end()};
}

absl::StatusOr<std::vector<LineRow>> LineCounts::Get(
    std::span<const PrefixKey> lines) const {
  std::vector<std::string> keys;
  for (const PrefixKey& line : lines) keys.push_back(LineKey(line));
  const auto values = index_.GetMany(Table::kLines, keys);
  if (!values.ok()) return values.status();
  std::vector<LineRow> rows;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& value = (*values)[i];
    // A damaged row counts as none.
    rows.push_back(value ? DecodeLineRow(keys[i], *value).value_or(LineRow())
                         : LineRow());
  }
  return rows;
}

absl::Status LineCounts::Note(std::span<const PrefixKey> lines,
                              const AdmissionRequest& request) {
  if (request.guest || lines.empty()) return absl::OkStatus();
  IndexBatch batch;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool cold = (i + 1) * request.grid_tokens > request.resume_position;
    LineRow row;
    row.count = cold ? 1 : 0;
    row.child = i + 1 < lines.size() ? LineChild(lines[i + 1]) : 0;
    row.last_seen_s = clock_.Seconds();
    const std::string key = LineKey(lines[i]);
    batch.Merge(Table::kLines, key, EncodeRow(key, row));
  }
  return index_.Write(batch, Durability::kLazy);
}

absl::StatusOr<std::uint64_t> LineCounts::Prune(std::uint64_t ttl_s,
                                                std::size_t most) {
  std::vector<std::pair<std::uint64_t, std::string>> rows;
  const std::uint64_t now = clock_.Seconds();
  auto status = index_.Scan(
      Table::kLines, [&](std::string_view key, std::string_view value) {
        const auto row = DecodeLineRow(key, value);
        rows.emplace_back(row ? row->last_seen_s : 0, key);
        return true;
      });
  if (!status.ok()) return status;
  std::sort(rows.begin(), rows.end());
  std::uint64_t gone = 0;
  IndexBatch batch;
  for (const auto& [seen, key] : rows) {
    if (now <= seen + ttl_s && rows.size() - gone <= most) break;
    batch.Delete(Table::kLines, key);
    ++gone;
    if (batch.ops().size() < kBatchRows) continue;
    if (auto s = index_.Write(batch, Durability::kLazy); !s.ok()) return s;
    batch = IndexBatch();
  }
  if (!batch.empty()) {
    if (auto s = index_.Write(batch, Durability::kLazy); !s.ok()) return s;
  }
  return gone;
}

}  // namespace holdfast::cachesvc
