#include "cachesvc/disk/cost_book.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

// Of models that come and go; the row of one that went stays in the index.
constexpr std::size_t kMostModels = 64;

constexpr char kDriveKey[] = "costs.drive";
constexpr int kRates = 4;
using Row = std::array<double, kRates>;

Row RowOf(const MeasuredRates& rates) {
  return {rates.prefill_tokens_per_s, rates.read_bytes_per_s[0],
          rates.read_bytes_per_s[1], rates.read_bytes_per_s[2]};
}

MeasuredRates RatesOf(const Row& row) {
  return {row[0], {row[1], row[2], row[3]}};
}

bool IsRate(double value) { return std::isfinite(value) && value > 0; }

std::string KeyOf(const Sha256Digest& fingerprint) {
  return "costs." + ToHex(fingerprint);
}

// Whether a rate of them has changed by more than is worth a write.
bool Differ(const MeasuredRates& a, const MeasuredRates& b) {
  const Row left = RowOf(a), right = RowOf(b);
  for (int i = 0; i < kRates; ++i) {
    if (std::abs(left[i] - right[i]) >
        CostBook::kWorthWriting * std::max(left[i], right[i]))
      return true;
  }
  return false;
}

}  // namespace

void CostBook::Load(const Sha256Digest& fingerprint) {
  if (index_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.contains(fingerprint)) return;
  }
  Entry entry;
  const auto value = index_->Get(Table::kMeta, KeyOf(fingerprint));
  Row row;
  if (value.ok() && value->has_value() && (*value)->size() == sizeof(row)) {
    std::memcpy(row.data(), (*value)->data(), sizeof(row));
    for (double& rate : row) rate = IsRate(rate) ? rate : 0;
    entry.now = entry.written = RatesOf(row);
  }
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMostModels) entries_.clear();
  entries_.try_emplace(fingerprint, entry);
}

MeasuredRates CostBook::Get(const Sha256Digest& fingerprint) {
  Load(fingerprint);
  const double of_drive = drive();
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(fingerprint);
  MeasuredRates rates;
  if (found != entries_.end()) rates = found->second.now;
  for (const int tier : {1, 2}) {
    if (rates.read_bytes_per_s[tier] == 0)
      rates.read_bytes_per_s[tier] = of_drive;
  }
  return rates;
}

double CostBook::drive() {
  {
    const std::lock_guard lock(mutex_);
    if (drive_.has_value()) return *drive_;
  }
  double rate = 0;
  if (index_ != nullptr) {
    const auto value = index_->Get(Table::kMeta, kDriveKey);
    double row = 0;
    if (value.ok() && value->has_value() && (*value)->size() == sizeof(row)) {
      std::memcpy(&row, (*value)->data(), sizeof(row));
      if (IsRate(row)) rate = row;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!drive_.has_value()) drive_ = rate;
  return *drive_;
}

void CostBook::PutDrive(double read_bytes_per_s) {
  if (!IsRate(read_bytes_per_s)) return;
  {
    const std::lock_guard lock(mutex_);
    drive_ = read_bytes_per_s;
  }
  if (index_ == nullptr) return;
  IndexBatch batch;
  batch.Put(Table::kMeta, kDriveKey,
            {reinterpret_cast<const char*>(&read_bytes_per_s),
             sizeof(read_bytes_per_s)});
  const absl::Status status = index_->Write(batch, Durability::kLazy);
  if (!status.ok())
    spdlog::warn("the drive's speed is not kept: {}", status.ToString());
}

void CostBook::Put(const Sha256Digest& fingerprint,
                   const MeasuredRates& rates) {
  Load(fingerprint);
  const Row told = RowOf(rates);
  Row now;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[fingerprint];
    now = RowOf(entry.now);
    for (int i = 0; i < kRates; ++i) {
      if (IsRate(told[i])) now[i] = told[i];
    }
    entry.now = RatesOf(now);
    if (index_ == nullptr || !Differ(entry.now, entry.written)) return;
    entry.written = entry.now;
  }
  IndexBatch batch;
  batch.Put(Table::kMeta, KeyOf(fingerprint),
            {reinterpret_cast<const char*>(now.data()), sizeof(now)});
  // A crash may lose it: the next engine measures.
  const absl::Status status = index_->Write(batch, Durability::kLazy);
  if (!status.ok()) {
    spdlog::warn("measured costs are not kept: {}", status.ToString());
  }
}

}  // namespace holdfast::cachesvc
